// Kernels over rows: who works on a row, how it is read, where it stays.
//
// Note [Rows on a card]
// A row of up to 1,024 elements belongs to a warp, a longer one to a block. Each thread reads its own elements 16 bytes
// at a time (one at a time where rows do not start on 16 bytes) and keeps them in shared memory, in slots that no other
// thread reads; so the row comes from memory once, however often it is looked at. A row too long for that is read
// again.
#pragma once

#include "gradus/kernels/device.cuh"

namespace gradus::kernels::cuda {

inline constexpr int row_threads = 256;
inline constexpr std::int64_t warp_row = 1024;              ///< the longest row a warp takes
inline constexpr std::int64_t row_cache_bytes = 96 * 1024;  ///< of shared memory, for a block's rows

/// The threads of one row: a warp, or the whole block.
template <class T, bool whole_block>
class RowGroup {
  public:
    /// scratch: 64 elements of shared memory, used in halves by turns, so that no barrier is needed between two sums.
    __device__ explicit RowGroup(T* scratch) : scratch_(scratch) {}
    __device__ int lane() const { return whole_block ? int(threadIdx.x) : int(threadIdx.x % 32); }
    __device__ int size() const { return whole_block ? int(blockDim.x) : 32; }
    __device__ int number() const { return whole_block ? 0 : int(threadIdx.x / 32); }
    __device__ int count() const { return whole_block ? 1 : int(blockDim.x / 32); }
    __device__ T sum(T v) {
        if constexpr (whole_block)
            return block_sum(v, half());
        else
            return warp_sum(v);
    }
    __device__ T max(T v) {
        if constexpr (whole_block)
            return block_max(v, half(), T(-INFINITY));
        else
            return warp_max(v);
    }

  private:
    __device__ T* half() { return scratch_ + 32 * (turn_++ & 1); }
    T* scratch_;
    int turn_ = 0;
};

/// V elements at a time of the group's share of [0, n): f(first element).
template <int V, class Group, class F>
__device__ __forceinline__ void each_part(const Group& group, std::int64_t n, F f) {
    for (std::int64_t i = std::int64_t(group.lane()) * V; i < n; i += std::int64_t(group.size()) * V) f(i);
}
template <int V, class T>
__device__ __forceinline__ Vector<T, V> load_part(const T* p) {
    return *reinterpret_cast<const Vector<T, V>*>(p);
}
template <int V, class T>
__device__ __forceinline__ void store_part(T* p, const Vector<T, V>& v) {
    *reinterpret_cast<Vector<T, V>*>(p) = v;
}

/// e^x for x <= 0, exactly 0 where it would not be a normal number, as the CPU's weight_exp.
__device__ __forceinline__ float weight_exp(float x) { return x < -87.0f ? 0.0f : math::exp(x); }
__device__ __forceinline__ double weight_exp(double x) { return x < -708.0 ? 0.0 : math::exp(x); }

/// How a row kernel is started for rows of n elements of T, of which `arrays` are kept.
struct RowLaunch {
    bool whole_block, cached;
    unsigned grid;
    int block;
    std::size_t shared_bytes;

    RowLaunch(std::int64_t rows, std::int64_t n, int size, int arrays) {
        whole_block = n > warp_row;
        block = row_threads;
        const std::int64_t groups = whole_block ? 1 : row_threads / 32, bytes = groups * n * size * arrays;
        cached = bytes <= row_cache_bytes;
        shared_bytes = cached ? std::size_t(bytes) : 0;
        grid = grid_for(rows, groups);
    }
};

/// Do rows of n elements allow 16 bytes at a time for all these arrays?
template <class T, class... Pointers>
bool rows_aligned(std::int64_t n, const Pointers*... arrays) {
    return n % vector_lanes<T> == 0 && (aligned16(arrays) && ...);
}

/// f(T(), vector lanes, whole block) with the last two as constants: picks the instance of a row kernel.
template <class F>
void visit_rows(DType type, bool aligned, bool whole_block, F&& f) {
    visit_real(type, [&](auto zero) {
        using T = decltype(zero);
        constexpr std::integral_constant<int, vector_lanes<T>> many;
        constexpr std::integral_constant<int, 1> one;
        if (aligned && whole_block)
            f(zero, many, std::true_type());
        else if (aligned)
            f(zero, many, std::false_type());
        else if (whole_block)
            f(zero, one, std::true_type());
        else
            f(zero, one, std::false_type());
    });
}

inline std::int64_t row_width(const Tensor& x) { return x.rank() == 0 ? 1 : x.shape().back(); }
inline std::int64_t row_count(const Tensor& x) { return x.numel() == 0 ? 0 : x.numel() / row_width(x); }

}  // namespace gradus::kernels::cuda
