// Philox4x32-10: counter-based random numbers, the same on every device, thread count and launch shape.
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "gradus/core/annotations.h"

namespace gradus {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Four random words of 32 bits from a counter and a key.
GRADUS_FN inline PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t(0xD2511F53u) * counter[0], b = std::uint64_t(0xCD9E8D57u) * counter[2];
        counter = {std::uint32_t(b >> 32) ^ counter[1] ^ key[0], std::uint32_t(b),
                   std::uint32_t(a >> 32) ^ counter[3] ^ key[1], std::uint32_t(a)};
        key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
    }
    return counter;
}

/// One op's draw: which numbers it gets is decided here, and nowhere else. The generator hands these out in program
/// order. Element e of global sample s is word e % 4 of the block with counter (e / 4, s, draw, step) and the seed as
/// key; dropout reads 16-bit lanes, so there element e is lane e % 8 of block e / 8.
struct Draw {
    std::uint64_t seed = 0;
    std::uint32_t step = 0, number = 0;
    std::int64_t first_sample = 0;  ///< of the local batch in the whole one
    std::int64_t samples =
        0;  ///< local samples: the elements are cut into as many equal parts; 0: one sample holds all

    GRADUS_FN PhiloxBlock block(std::uint64_t index, std::uint32_t sample) const {
        return philox({std::uint32_t(index), sample, number, step ^ std::uint32_t(index >> 32) * 0x85EBCA6Bu},
                      {std::uint32_t(seed), std::uint32_t(seed >> 32)});
    }
};

/// A word as a number in (0, 1): never 0, never 1, also in f32.
GRADUS_FN inline float to_unit(std::uint32_t word) { return (float(word >> 9) + 0.5f) * 0x1p-23f; }
GRADUS_FN inline double to_unit_f64(std::uint32_t high, std::uint32_t low) {
    return (double((std::uint64_t(high) << 32 | low) >> 12) + 0.5) * 0x1p-52;
}

/// u in (0, 1) stretched over [low, high), `last` being the largest number below high. Rounded in the same places on
/// every device, which compilers would not do by themselves; in two products, so that a range beyond the largest number
/// does not overflow.
GRADUS_FN inline double between(double u, double low, double high, double last) {
    const double x = std::fma(high, u, low * (1 - u));
    return x < last ? x : last;
}

}  // namespace gradus
