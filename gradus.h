// Everything public in Gradus, in the order of its layers. The contracts of the kernels are not here: an op calls them,
// a user does not.
#pragma once

#include "gradus/autograd/leaf.h"
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/device.h"
#include "gradus/core/dtype.h"
#include "gradus/core/error.h"
#include "gradus/core/layout.h"
#include "gradus/core/random.h"
#include "gradus/core/storage.h"
#include "gradus/core/stream.h"
#include "gradus/core/tensor.h"
