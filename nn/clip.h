// Clipping of gradients, by their common norm or value by value.
#pragma once

#include "gradus/nn/state.h"

namespace gradus {

/// √Σ g² over the gradients of all parameters, in f64. Parameters without a gradient count nothing, one that is listed
/// twice counts once; without any gradient the norm is 0.
double gradient_norm(const NamedTensors& parameters);

/// min(1, limit / (norm + 1e-6)); NaN for a NaN norm. Optimizer::step clips by itself where it is given a clip_norm.
double clip_factor(double norm, double limit);

/// Multiplies every gradient by clip_factor(norm, limit) and returns the norm before. Where the factor is 1 nothing is
/// written. A NaN norm makes every gradient NaN, unless `error_if_nonfinite`: then a norm that is NaN or Inf throws and
/// changes nothing.
double clip_grad_norm(const NamedTensors& parameters, double limit, bool error_if_nonfinite = false);

/// Clamps every element of every gradient to [-limit, limit]; NaN stays.
void clip_grad_value(const NamedTensors& parameters, double limit);

}  // namespace gradus
