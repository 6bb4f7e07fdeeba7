// The k best elements of each line on a card: a block a line, one pass over the line an element.
//
// A pass looks for the best element behind the one chosen last, in the total order of (value, index); so nothing is
// marked or moved. Bytes: k · n · size a line, from the cache after the first pass: made for the small k of a beam.
#include "gradus/kernels/sort.h"

#include "gradus/kernels/device.cuh"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {
namespace {

template <class V>
struct Candidate {
    V value;
    std::int64_t index;  // -1: none

    /// Does `this` come before `other`? NaN counts as the largest, equal ones go by their index.
    __device__ bool before(Candidate other, bool largest) const {
        if (index < 0 || other.index < 0) return index >= 0;
        const V a = largest ? value : other.value, b = largest ? other.value : value;
        if (greater(a, b)) return true;
        if (greater(b, a)) return false;
        return index < other.index;
    }
    static __device__ bool greater(V a, V b) { return a > b || (a != a && b == b); }
};

constexpr int threads = 256;

template <class T, class V>
__global__ void __launch_bounds__(threads)
    topk_kernel(const T* x, Walk lines_of_x, std::int64_t step, std::int64_t n, std::int64_t* indices,
                Walk lines_of_indices, std::int64_t out_step, std::int64_t k, bool largest, std::int64_t lines) {
    GRADUS_SHARED(V, values, [threads / 32]);
    GRADUS_SHARED(std::int64_t, places, [threads / 32]);
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
    for (std::int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
        const T* from = x + lines_of_x.offset(line);
        std::int64_t* to = indices + lines_of_indices.offset(line);
        Candidate<V> last{V(0), -1};
        for (std::int64_t chosen = 0; chosen < k; ++chosen) {
            Candidate<V> best{V(0), -1};
            for (std::int64_t i = threadIdx.x; i < n; i += threads) {
                const Candidate<V> here{V(from[i * step]), i};
                if ((last.index < 0 || last.before(here, largest)) && here.before(best, largest)) best = here;
            }
            for (int o = 16; o > 0; o /= 2) {
                const V value = __shfl_xor_sync(all_lanes, best.value, o);
                const std::int64_t index = __shfl_xor_sync(all_lanes, best.index, o);
                const Candidate<V> other{value, index};
                if (other.before(best, largest)) best = other;
            }
            if (lane == 0) values[warp] = best.value, places[warp] = best.index;
            __syncthreads();
            best = {values[0], places[0]};
            for (int w = 1; w < threads / 32; ++w) {
                const Candidate<V> other{values[w], places[w]};
                if (other.before(best, largest)) best = other;
            }
            if (threadIdx.x == 0) to[chosen * out_step] = best.index;
            last = best;
            __syncthreads();
        }
    }
}

/// The lines of a layout along an axis, as a walk over the other axes.
Walk lines_of(Layout layout, int axis) {
    layout.shape[axis] = 1;
    return Walk(layout);
}

}  // namespace

void topk(const Tensor& x, int axis, bool largest, const Tensor& indices) {
    if (indices.numel() == 0) return;
    const std::int64_t n = x.size(axis), k = indices.size(axis), lines = x.numel() / n;
    visit(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        using V = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, Wide<T>>;
        using E = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
        GRADUS_LAUNCH((topk_kernel<E, V>), x.device(), grid_for(lines, 1), threads, 0,
                      static_cast<const E*>(x.address()), lines_of(x.layout(), axis), x.strides()[axis], n,
                      indices.data<std::int64_t>(), lines_of(indices.layout(), axis), indices.strides()[axis], k,
                      largest, lines);
    });
}

}  // namespace gradus::kernels::cuda
