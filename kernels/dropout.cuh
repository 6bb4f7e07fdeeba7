// Dropout's decisions on a card: eight from each Philox block, the same as the CPU's bit for bit.
#pragma once

#include "gradus/kernels/device.cuh"
#include "gradus/kernels/dropout.h"

namespace gradus::kernels::cuda {

inline constexpr int dropout_decisions = 8;  // 16-bit lanes of a block

/// What is dropped, and what the rest is multiplied by; A is what the elements are computed in.
template <class A>
struct Choice {
    std::uint32_t threshold;
    A scale;

    explicit Choice(double p) : threshold(dropout_threshold(p)), scale(A(dropout_scale(p))) {}
    /// x · scale or 0, as lane `k` of the block says.
    __device__ A apply(A x, const PhiloxBlock& words, int k) const {
        const std::uint32_t lane = k % 2 == 0 ? words[k / 2] & 0xffffu : words[k / 2] >> 16;
        return lane >= threshold ? x * scale : A(0);
    }
    /// The same for elements first ... first + V - 1 of a sample, which lie in one block: V divides 8 and `first`.
    template <class T, int V>
    __device__ Vector<T, V> apply(const Vector<T, V>& from, const Draw& draw, std::int64_t first,
                                  std::int64_t sample) const {
        const PhiloxBlock words =
            draw.block(std::uint64_t(first / dropout_decisions), std::uint32_t(draw.first_sample + sample));
        const int part = int(first / V % (dropout_decisions / V));
        Vector<T, V> to;
#pragma unroll
        for (int k = 0; k < dropout_decisions; ++k)  // constant k: the words stay in registers
            if (k / V == part) to.lane[k % V] = T(apply(A(from.lane[k % V]), words, k));
        return to;
    }
};

}  // namespace gradus::kernels::cuda
