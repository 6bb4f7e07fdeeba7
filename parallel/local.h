// Ranks that are threads of one process, each with a device of its own.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "gradus/parallel/communicator.h"

namespace gradus::parallel {

struct LocalOptions {
    std::chrono::duration<double> timeout = std::chrono::seconds(30);  ///< for the others to come to a collective
};

/// The ends of a group of `ranks`, the first of rank 0. Each is for one thread; tensors may lie on CPU devices, on real
/// cards or on emulated ones, on one for all or on one each.
std::vector<std::unique_ptr<Communicator>> local_group(int ranks, const LocalOptions& options = {});

}  // namespace gradus::parallel
