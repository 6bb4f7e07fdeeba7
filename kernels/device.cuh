// What every CUDA kernel is made of: sums over a warp and a block, loads of 16 bytes, the size of a grid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gradus/core/dtype.h"
#include "gradus/core/launch.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/math.h"

namespace gradus::kernels::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;

/// What a dtype is computed in: 16-bit floats in f32, the others in themselves.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

// ---- sums in a fixed order ----
template <class T>
__device__ __forceinline__ T warp_sum(T v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(all_lanes, v, o);
    return v;
}
template <class T>
__device__ __forceinline__ T warp_max(T v) {
    for (int o = 16; o > 0; o >>= 1) {
        const T other = __shfl_xor_sync(all_lanes, v, o);
        v = other > v ? other : v;
    }
    return v;
}

/// The same over a block whose size is a multiple of 32; every thread gets the result. `scratch` is shared memory of 32
/// elements, free to use again after the block's next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T v, T* scratch) {
    const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warp_sum(v);
    if (warps == 1) return v;
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? scratch[lane] : T(0));
}
template <class T>
__device__ __forceinline__ T block_max(T v, T* scratch, T lowest) {
    const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warp_max(v);
    if (warps == 1) return v;
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    return warp_max(lane < warps ? scratch[lane] : lowest);
}

// ---- 16 bytes at a time ----
template <class T, int n = int(16 / sizeof(T))>
struct alignas(sizeof(T) * n) Vector {
    T lane[n];
};
template <class T>
inline constexpr int vector_lanes = int(16 / sizeof(T));

/// The address must be a multiple of 16.
template <class T>
__device__ __forceinline__ Vector<T> load16(const T* p) {
    return *reinterpret_cast<const Vector<T>*>(p);
}
template <class T>
__device__ __forceinline__ void store16(T* p, const Vector<T>& v) {
    *reinterpret_cast<Vector<T>*>(p) = v;
}

// ---- host side ----
inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Blocks for a loop over `work` items by `per_block` at a time in steps of the whole grid: enough to fill any card,
/// few enough to be started at once.
inline unsigned grid_for(std::int64_t work, std::int64_t per_block) {
    return unsigned(std::clamp<std::int64_t>(ceil_div(work, per_block), work > 0 ? 1 : 0, 132 * 16));
}

/// f(T()) for the two types that row kernels compute in.
template <class F>
void visit_real(DType type, F&& f) {
    if (type == DType::f64)
        f(double());
    else
        f(float());
}

}  // namespace gradus::kernels::cuda
