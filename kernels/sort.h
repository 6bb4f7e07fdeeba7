// Selecting the largest or smallest elements of lines; the contract, whatever the device.
#pragma once

#include <cstdint>

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

namespace cpu {
void topk(const Tensor& x, int axis, bool largest, const Tensor& indices);
}  // namespace cpu
namespace cuda {
decltype(cpu::topk) topk;
}  // namespace cuda

/// indices (x's shape, k at the axis; contiguous i64): where the k largest (or smallest) elements of each line lie,
/// best first, equal ones in the order of their index. NaN counts as larger than every number. x has any strides; k <=
/// the axis.
inline void topk(const Tensor& x, int axis, bool largest, const Tensor& indices) {
    GRADUS_DISPATCH("topk", x.device(), topk, x, axis, largest, indices);
}

}  // namespace gradus::kernels
