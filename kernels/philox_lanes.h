// Sixteen Philox blocks at once, one a lane: the same words as core/philox.h, bit for bit.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "gradus/core/philox.h"
#include "gradus/kernels/simd.h"

namespace gradus::kernels {

typedef std::uint64_t u64x8 __attribute__((vector_size(64)));
typedef std::uint16_t u16x16 __attribute__((vector_size(32)));

/// Four words of 16 blocks: word[w][lane].
struct PhiloxLanes {
    u32x16 word[4];
};

namespace detail {

/// The halves of the 64-bit products of 16 words with a constant.
inline void multiply(const u32x16& x, std::uint64_t factor, u32x16& high, u32x16& low) {
    u64x8 pairs;
    std::memcpy(&pairs, &x, sizeof pairs);
    constexpr std::uint64_t lower = 0xffffffffu;
#ifdef __AVX512F__
    // A multiplication of 64 by 64 bits, which GCC makes of the general form, takes three times as long.
    const __m512i constant = _mm512_set1_epi64(std::int64_t(factor));
    const u64x8 even = u64x8(_mm512_maskz_mul_epu32(0xff, __m512i(pairs), constant));
    const u64x8 odd = u64x8(_mm512_maskz_mul_epu32(0xff, __m512i(pairs >> 32), constant));
#else
    const u64x8 even = (pairs & lower) * factor, odd = (pairs >> 32) * factor;
#endif
    const u64x8 h = (even >> 32) | (odd & ~lower), l = (even & lower) | (odd << 32);
    std::memcpy(&high, &h, sizeof high);
    std::memcpy(&low, &l, sizeof low);
}

}  // namespace detail

/// The draw's blocks number index[lane] + offset of a sample.
inline PhiloxLanes philox_lanes(const Draw& draw, const std::uint64_t (&index)[16], std::uint64_t offset,
                                std::uint32_t sample) {
    u32x16 a, d;
    for (int i = 0; i < 16; ++i) {
        const std::uint64_t at = index[i] + offset;
        a[i] = std::uint32_t(at);
        d[i] = draw.step ^ std::uint32_t(at >> 32) * 0x85EBCA6Bu;
    }
    u32x16 b = u32x16{} + sample, c = u32x16{} + draw.number;
    std::uint32_t key0 = std::uint32_t(draw.seed), key1 = std::uint32_t(draw.seed >> 32);
    for (int round = 0; round < 10; ++round) {
        u32x16 high0, low0, high1, low1;
        detail::multiply(a, 0xD2511F53u, high0, low0);
        detail::multiply(c, 0xCD9E8D57u, high1, low1);
        a = high1 ^ b ^ key0, b = low1, c = high0 ^ d ^ key1, d = low0;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

}  // namespace gradus::kernels
