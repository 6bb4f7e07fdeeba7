// A batch of matrix products as every rung of the ladder takes it, and the rungs.
#pragma once

#include "gradus/kernels/device.cuh"
#include "gradus/kernels/matmul/rung.h"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {

/// What a dtype is added up in: 16-bit floats in f32, integers without sign, so that they wrap around.
template <class T>
struct AccumulatorOf {
    using type = Wide<T>;
};
template <>
struct AccumulatorOf<std::uint8_t> {
    using type = std::uint32_t;
};
template <>
struct AccumulatorOf<std::int32_t> {
    using type = std::uint32_t;
};
template <>
struct AccumulatorOf<std::int64_t> {
    using type = std::uint64_t;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

/// One operand, seen as (r, k): r is a row of the left matrix or a column of the right one, k runs along the sum.
template <class T>
struct Side {
    const T* data;
    std::int64_t r_stride, k_stride;
    Walk batch;  ///< where each matrix of the batch starts
};

/// y (batch, m, n) row-major = a b (+ bias over n) (+ y), or the relu of that. `part` of `parts` takes its share of k;
/// with more than one, y is the workspace of partial sums (parts, batch, m, n).
template <class T>
struct Product {
    Side<T> a, b;
    T* y;
    const T* bias;  // (n), or null
    std::int64_t m, n, k, batch;
    bool accumulate, relu;
    int parts = 1;
    Accumulator<T>* workspace = nullptr;

    /// The range of k that a part adds up: whole tiles of 16, so that the tile loads stay aligned.
    GRADUS_FN std::int64_t k_begin(int part) const {
        const std::int64_t tiles = (k + 15) / 16;
        return tiles * part / parts * 16;
    }
    GRADUS_FN std::int64_t k_end(int part) const { return part + 1 == parts ? k : k_begin(part + 1); }

    /// Stores one element of a part's result.
    __device__ void store(int part, std::int64_t item, std::int64_t i, std::int64_t j, Accumulator<T> sum) const {
        const std::int64_t at = (item * m + i) * n + j;
        if (parts > 1)
            workspace[part * batch * m * n + at] = sum;
        else
            finish(at, j, sum);
    }
    __device__ void finish(std::int64_t at, std::int64_t j, Accumulator<T> sum) const {
        using A = Accumulator<T>;
        if (bias) sum += A(bias[j]);
        if (accumulate) sum += A(y[at]);
        if constexpr (!std::is_integral_v<T>)
            if (relu && sum < A(0)) sum = A(0);
        y[at] = T(sum);
    }
};

template <class T>
void multiply_naive(const Product<T>& p, Device device);
template <class T>
void multiply_tiled(const Product<T>& p, Device device);
/// Of floats only.
template <class T>
void multiply_registers(const Product<T>& p, Rung rung, Device device);
/// Adds the parts of a split sum up, in order.
template <class T>
void join_parts(const Product<T>& p, Device device);

}  // namespace gradus::kernels::cuda
