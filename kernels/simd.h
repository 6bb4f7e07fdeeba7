// Packs of lanes on the compiler's vector types, and the math on them. One source for every instruction set: the
// compiler lowers a 64-byte pack to whatever registers there are.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gradus/kernels/math.h"

namespace gradus {

typedef float f32x16 __attribute__((vector_size(64)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef std::int32_t i32x16 __attribute__((vector_size(64)));
typedef std::uint32_t u32x16 __attribute__((vector_size(64)));
typedef std::int64_t i64x8 __attribute__((vector_size(64)));

template <class T>
struct PackOf {
    using type = T;
};  // integers: one at a time, the compiler vectorises the loop
template <>
struct PackOf<float> {
    using type = f32x16;
};
template <>
struct PackOf<double> {
    using type = f64x8;
};
template <class T>
using Pack = typename PackOf<T>::type;
template <class T>
inline constexpr int lanes = int(sizeof(Pack<T>) / sizeof(T));

namespace math {
template <>
struct ElementOf<f32x16> {
    using type = float;
};
template <>
struct ElementOf<f64x8> {
    using type = double;
};
}  // namespace math
template <class V>
using Element = typename math::ElementOf<V>::type;

template <class T>
Pack<T> load(const T* p) {
    Pack<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class T>
void store(T* p, const Pack<T>& v) {
    std::memcpy(p, &v, sizeof v);
}
/// The first n lanes (1 <= n <= lanes); the others repeat `fill`.
template <class T>
Pack<T> load_part(const T* p, int n, T fill = T(0)) {
    T lane[lanes<T>];
    for (T& x : lane) x = fill;
    std::memcpy(lane, p, std::size_t(n) * sizeof(T));
    return load(lane);
}
template <class T>
void store_part(T* p, const Pack<T>& v, int n) {
    std::memcpy(p, &v, std::size_t(n) * sizeof(T));
}

namespace math {

inline f32x16 as_float(const i32x16& x) {
    f32x16 y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}
inline i32x16 as_int(const f32x16& x) {
    i32x16 y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

template <class V, class F>
V each_lane(const V& x, F f) {
    V y = x;
    for (int i = 0; i < int(sizeof(V) / sizeof(Element<V>)); ++i) y[i] = f(x[i]);
    return y;
}

// f64 packs go through the C library.
#define GRADUS_MATH(name)                                           \
    inline f64x8 name(const f64x8& x) {                             \
        return each_lane(x, [](double v) { return std::name(v); }); \
    }
// clang-format off
GRADUS_MATH(exp) GRADUS_MATH(expm1) GRADUS_MATH(log) GRADUS_MATH(log1p) GRADUS_MATH(tanh) GRADUS_MATH(sin) GRADUS_MATH(cos)
GRADUS_MATH(tan) GRADUS_MATH(erf) GRADUS_MATH(sqrt) GRADUS_MATH(floor) GRADUS_MATH(ceil) GRADUS_MATH(nearbyint)
// clang-format on
#undef GRADUS_MATH
#define GRADUS_LANES(name)                                         \
    inline f32x16 name(const f32x16& x) {                          \
        return each_lane(x, [](float v) { return std::name(v); }); \
    }
    // clang-format off
GRADUS_LANES(sin) GRADUS_LANES(cos) GRADUS_LANES(tan) GRADUS_LANES(erf)
GRADUS_LANES(sqrt) GRADUS_LANES(floor) GRADUS_LANES(ceil) GRADUS_LANES(nearbyint)
// clang-format on
#undef GRADUS_LANES

            template <class V>
            V pow(const V& a, const V& b) {
    V y = a;
    for (int i = 0; i < int(sizeof(V) / sizeof(Element<V>)); ++i) y[i] = std::pow(a[i], b[i]);
    return y;
}

/// |error| about 1 ulp; 0 below -104, inf above 88.73, NaN stays.
inline f32x16 exp(f32x16 x) {
    using V = f32x16;
    x = select(x < k<V>(-110), k<V>(-110), x);
    x = select(x > k<V>(90), k<V>(90), x);
    const V shifted = x * 1.44269504088896f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the rounded quotient
    const V n = shifted - 12582912.0f;
    V r = x - n * 0.693145751953125f;
    r = r - n * 1.42860682030941723212e-6f;
    V p = k<V>(1.9841270e-4);
    p = p * r + 1.38888889e-3f, p = p * r + 8.3333333e-3f, p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f, p = p * r + 0.5f, p = p * r + 1.0f, p = p * r + 1.0f;
    const i32x16 exponent = as_int(shifted) - 0x4b400000;  // n as an integer
    const i32x16 half = exponent >> 1;  // in two factors, so that subnormals and overflow come out right
    return p * as_float((half + 127) << 23) * as_float((exponent - half + 127) << 23);
}

/// |error| about 1 ulp; log 0 = -inf, log of a negative number = NaN.
inline f32x16 log(f32x16 x) {
    using V = f32x16;
    const auto tiny = x < k<V>(1.17549435e-38);
    const V scaled = select(tiny, x * 33554432.0f, x);
    const i32x16 bits = as_int(scaled);
    const i32x16 shifted = bits - 0x3f3504f3;  // mantissa in [√½, √2)
    const i32x16 exponent = shifted >> 23;
    const V f = as_float((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
    V n = __builtin_convertvector(exponent, V);
    n = select(tiny, n - 25.0f, n);
    const V s = f / (f + 2.0f), z = s * s;
    V p = k<V>(2.0 / 11);
    p = p * z + float(2.0 / 9), p = p * z + float(2.0 / 7), p = p * z + 0.4f, p = p * z + float(2.0 / 3);
    // log(1 + f) = f - f²/2 + s (f²/2 + z p): the large parts are exact.
    const V square = f * f * 0.5f;
    V y = s * (square + z * p);
    y = n * 1.42860682030941723212e-6f + y;
    y = n * 0.693145751953125f + (f - (square - y));
    y = select(x == k<V>(0), k<V>(-INFINITY), y);
    y = select(x < k<V>(0), k<V>(NAN), y);
    return select((x == k<V>(INFINITY)) | (x != x), x, y);
}

inline f32x16 log1p(const f32x16& x) {
    using V = f32x16;
    const V u = x + 1.0f;
    const V y = log(u) + (x - (u - 1.0f)) / u;
    const auto plain = (u == k<V>(0)) | (x == k<V>(INFINITY)) | (x != x);
    return select(abs(x) < k<V>(1e-7), x, select(plain, log(u), y));
}

inline f32x16 expm1(const f32x16& x) {
    using V = f32x16;
    V p = k<V>(2.4801587e-5);
    p = p * x + 1.9841270e-4f, p = p * x + 1.38888889e-3f, p = p * x + 8.3333333e-3f, p = p * x + 4.16666667e-2f;
    p = p * x + 1.66666667e-1f, p = p * x + 0.5f, p = p * x * x + x;
    return select(abs(x) < k<V>(0.5), p, exp(x) - 1.0f);
}

inline f32x16 tanh(const f32x16& x) {
    using V = f32x16;
    const V a = select(x > k<V>(10), k<V>(10), select(x < k<V>(-10), k<V>(-10), x));
    const V t = expm1(a + a);
    return t / (t + 2.0f);
}

}  // namespace math

inline float sum_lanes(const f32x16& v) {
    float lane[16];
    std::memcpy(lane, &v, sizeof v);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
    return lane[0];
}
inline double sum_lanes(const f64x8& v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
}  // namespace gradus
