// Numbers that must lie in a range, looked at on the card: what is wrong is told when the host waits anyway.
#pragma once

#include <optional>

#include "gradus/core/late_fault.h"
#include "gradus/core/tensor.h"

namespace gradus::kernels::cuda {

/// A copy of contiguous i64 numbers, at least one, in which those that are neither in [0, bound) nor `ignored` have
/// become `ignored`, or 0 where nothing is. If there is such a one, describe(its position, its value) is told with the
/// next wait.
Tensor checked_numbers(const Tensor& numbers, std::int64_t bound, std::optional<std::int64_t> ignored,
                       DescribeFault describe);

}  // namespace gradus::kernels::cuda
