// Reductions over any axes, in an order that no thread count changes.
#pragma once

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

enum class Reduce { sum, max, min, prod };

namespace cpu {
void reduce(Reduce what, const Tensor& x, const Axes& axes, const Tensor& y);
void arg_extreme(bool largest, const Tensor& x, int axis, const Tensor& y);
void cumsum(const Tensor& x, int axis, const Tensor& y);
}  // namespace cpu
namespace cuda {
decltype(cpu::reduce) reduce;
decltype(cpu::arg_extreme) arg_extreme;
decltype(cpu::cumsum) cumsum;
}  // namespace cuda

/// y over the named axes (normalised, sorted) of x; y is contiguous and holds the kept axes in order. Sums of f32 and
/// 16-bit floats run in f32 over a block, across blocks in f64. NaN wins in max and min. An empty sum is 0, an empty
/// product 1, an empty maximum of bools false, an empty minimum true.
inline void reduce(Reduce what, const Tensor& x, const Axes& axes, const Tensor& y) {
    GRADUS_DISPATCH("reduce", y.device(), reduce, what, x, axes, y);
}
/// y (i64, contiguous): the first index of the largest (smallest) element along the axis, of the first NaN where there
/// is one.
inline void arg_extreme(bool largest, const Tensor& x, int axis, const Tensor& y) {
    GRADUS_DISPATCH("arg_extreme", y.device(), arg_extreme, largest, x, axis, y);
}
/// Running sums along an axis; x and y share dtype and shape.
inline void cumsum(const Tensor& x, int axis, const Tensor& y) {
    GRADUS_DISPATCH("cumsum", y.device(), cumsum, x, axis, y);
}

}  // namespace gradus::kernels
