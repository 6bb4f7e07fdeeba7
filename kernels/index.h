// Reading and adding at computed places: rows of a table, single elements, one-hot rows; the contract, whatever the
// device.
//
// Index tensors are contiguous i64 and come from checked_index. Results are contiguous and every element of them is
// written. Sums are taken in the order of the index, whatever the number of threads; 16-bit floats add up in f32 and
// round once.
#pragma once

#include <cstdint>

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

namespace cpu {
Tensor checked_index(const char* op, const Tensor& index, std::int64_t bound);
void index_select(const Tensor& x, int axis, const Tensor& index, const Tensor& y);
void index_sum(const Tensor& x, int axis, const Tensor& index, std::int64_t skip, const Tensor& y);
void gather(const Tensor& x, int axis, const Tensor& index, const Tensor& y);
void scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& y);
void one_hot(const Tensor& index, const Tensor& y);
}  // namespace cpu
namespace cuda {
decltype(cpu::checked_index) checked_index;
decltype(cpu::index_select) index_select;
decltype(cpu::index_sum) index_sum;
decltype(cpu::gather) gather;
decltype(cpu::scatter_add) scatter_add;
decltype(cpu::one_hot) one_hot;
}  // namespace cuda

/// The index where all of it lies in [0, bound). Else an error names the first entry that does not, its position and
/// the range: at once on the CPU; on a card, where nobody waits for the answer, with the next wait (core/late_fault.h),
/// until when the result, a copy, holds 0 in its place.
inline Tensor checked_index(const char* op, const Tensor& index, std::int64_t bound) {
    return GRADUS_DISPATCH(op, index.device(), checked_index, op, index, bound);
}

/// y[…, i, …] = x[…, index[i], …] at this axis; x has any strides.
inline void index_select(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    GRADUS_DISPATCH("index_select", y.device(), index_select, x, axis, index, y);
}

/// y[…, j, …] = Σ x[…, i, …] over the i with index[i] = j, zero where there is none and for j = skip (-1: none). x is
/// contiguous.
inline void index_sum(const Tensor& x, int axis, const Tensor& index, std::int64_t skip, const Tensor& y) {
    GRADUS_DISPATCH("index_sum", y.device(), index_sum, x, axis, index, skip, y);
}

/// y[p] = x[p with the axis' entry replaced by index[p]], p over the index's shape; x has any strides.
inline void gather(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    GRADUS_DISPATCH("gather", y.device(), gather, x, axis, index, y);
}

/// y[p with the axis' entry replaced by index[p]] += x[p], p over the index's shape, which is x's; x has any strides.
inline void scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    GRADUS_DISPATCH("scatter_add", y.device(), scatter_add, x, axis, index, y);
}

/// y (…, classes): 1 at each index, else 0.
inline void one_hot(const Tensor& index, const Tensor& y) { GRADUS_DISPATCH("one_hot", y.device(), one_hot, index, y); }

}  // namespace gradus::kernels
