// The functions that formulas are made of, for one lane: the same names for every device; simd.h adds packs.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gradus/core/annotations.h"

namespace gradus::math {

/// What a lane's numbers are: itself for a scalar.
template <class V>
struct ElementOf {
    using type = V;
};

template <class V>
struct Constant {
    GRADUS_FN static V of(double c) {
        if constexpr (std::is_arithmetic_v<V>)
            return V(c);
        else
            return V{} + typename ElementOf<V>::type(c);
    }
};
/// The constant c in every lane.
template <class V>
GRADUS_FN V k(double c) {
    return Constant<V>::of(c);
}

template <class V, class M>
GRADUS_FN V select(const M& mask, const V& a, const V& b) {
    return mask ? a : b;
}

#define GRADUS_MATH(name)                                         \
    GRADUS_FN inline float name(float x) { return std::name(x); } \
    GRADUS_FN inline double name(double x) { return std::name(x); }
// clang-format off
GRADUS_MATH(exp) GRADUS_MATH(expm1) GRADUS_MATH(log) GRADUS_MATH(log1p) GRADUS_MATH(tanh) GRADUS_MATH(sin) GRADUS_MATH(cos)
GRADUS_MATH(tan) GRADUS_MATH(erf) GRADUS_MATH(sqrt) GRADUS_MATH(floor) GRADUS_MATH(ceil) GRADUS_MATH(nearbyint)
// clang-format on
#undef GRADUS_MATH

    // Integers: rounding leaves them as they are, a power multiplies (a negative exponent gives 0 but for 1 and -1).
    GRADUS_FN inline std::int64_t floor(std::int64_t x) {
    return x;
}
GRADUS_FN inline std::int64_t ceil(std::int64_t x) { return x; }
GRADUS_FN inline std::int64_t nearbyint(std::int64_t x) { return x; }
GRADUS_FN inline std::int64_t pow(std::int64_t a, std::int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    std::uint64_t y = 1;
    for (std::uint64_t x = std::uint64_t(a); b > 0; b >>= 1, x *= x)
        if (b & 1) y *= x;
    return std::int64_t(y);
}
GRADUS_FN inline float pow(float a, float b) { return std::pow(a, b); }
GRADUS_FN inline double pow(double a, double b) { return std::pow(a, b); }

template <class V>
GRADUS_FN V abs(const V& x) {
    return select(x < k<V>(0), -x, select(x == k<V>(0), k<V>(0), x));
}

}  // namespace gradus::math
