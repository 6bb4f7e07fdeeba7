// Walking one row in packs: whole ones, then the rest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gradus/core/dtype.h"
#include "gradus/kernels/simd.h"

namespace gradus::kernels {

/// f(T()) for the two types that row kernels compute in.
template <class F>
inline void visit_real(DType type, F&& f) {
    if (type == DType::f64)
        f(double());
    else
        f(float());
}

/// Some lanes of a row: `count` elements from element `at` on. Whole packs are made with a constant count, so the
/// branch goes.
template <class T>
struct Part {
    std::int64_t at;
    int count;
    bool whole() const { return count == lanes<T>; }
    Pack<T> of(const T* row, T fill = T(0)) const {
        return whole() ? load(row + at) : load_part(row + at, count, fill);
    }
    void put(T* row, const Pack<T>& v) const {
        if (whole())
            store(row + at, v);
        else
            store_part(row + at, v, count);
    }
};

template <class T, class F>
inline void each_part(std::int64_t begin, std::int64_t end, F&& f) {
    std::int64_t i = begin;
    for (; i + lanes<T> <= end; i += lanes<T>) f(Part<T>{i, lanes<T>});
    if (i < end) f(Part<T>{i, int(end - i)});
}

/// eˣ for x <= 0 as a softmax needs it: exactly 0 where it would not be a normal number. Hidden scores (-inf) are
/// common, and a processor takes some hundred cycles for every result that underflows. About 1 ulp; NaN stays.
inline f32x16 weight_exp(const f32x16& x) {
    using V = f32x16;
    const V low = math::k<V>(-87), y = math::select(x < low, low, x);
    const V shifted = y * 1.44269504088896f + 12582912.0f;  // as math::exp, but the exponent fits one factor
    const V n = shifted - 12582912.0f;
    V r = y - n * 0.693145751953125f;
    r = r - n * 1.42860682030941723212e-6f;
    V p = math::k<V>(1.9841270e-4);
    p = p * r + 1.38888889e-3f, p = p * r + 8.3333333e-3f, p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f, p = p * r + 0.5f, p = p * r + 1.0f, p = p * r + 1.0f;
    p *= math::as_float((math::as_int(shifted) - 0x4b400000 + 127) << 23);
    return math::select(x < low, math::k<V>(0), p);
}
inline f64x8 weight_exp(const f64x8& x) {
    using V = f64x8;
    const V low = math::k<V>(-708);
    return math::select(x < low, math::k<V>(0), math::exp(math::select(x < low, low, x)));
}

inline constexpr std::int64_t row_chunk =
    4096;  ///< elements that are added up in packs before their sum goes to a double

/// Σ f(part) over n elements; f gives 0 in the lanes beyond the part.
template <class T, class F>
inline double sum_row(std::int64_t n, F&& f) {
    constexpr int L = lanes<T>;
    double total = 0;
    for (std::int64_t chunk = 0; chunk < n; chunk += row_chunk) {
        const std::int64_t end = std::min(n, chunk + row_chunk);
        std::int64_t i = chunk;
        Pack<T> a{}, b{}, c{}, d{};
        for (; i + 4 * L <= end; i += 4 * L) {
            a += f(Part<T>{i, L});
            b += f(Part<T>{i + L, L});
            c += f(Part<T>{i + 2 * L, L});
            d += f(Part<T>{i + 3 * L, L});
        }
        for (; i + L <= end; i += L) a += f(Part<T>{i, L});
        if (i < end) b += f(Part<T>{i, int(end - i)});
        total += double(sum_lanes((a + b) + (c + d)));
    }
    return total;
}

template <class T>
inline T largest_lane(const Pack<T>& v) {
    T lane[lanes<T>];
    store(lane, v);
    for (int step = lanes<T> / 2; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) lane[i] = lane[i] > lane[i + step] ? lane[i] : lane[i + step];
    return lane[0];
}

/// max f(part) over n elements; f gives -inf in the lanes beyond the part. A NaN may or may not be seen.
template <class T, class F>
inline T max_row(std::int64_t n, F&& f) {
    constexpr int L = lanes<T>;
    const Pack<T> low = math::k<Pack<T>>(-INFINITY);
    const auto larger = [](const Pack<T>& x, const Pack<T>& y) { return math::select(x > y, x, y); };
    Pack<T> a = low, b = low, c = low, d = low;
    std::int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        a = larger(a, f(Part<T>{i, L}));
        b = larger(b, f(Part<T>{i + L, L}));
        c = larger(c, f(Part<T>{i + 2 * L, L}));
        d = larger(d, f(Part<T>{i + 3 * L, L}));
    }
    for (; i + L <= n; i += L) a = larger(a, f(Part<T>{i, L}));
    if (i < n) b = larger(b, f(Part<T>{i, int(n - i)}));
    return largest_lane<T>(larger(larger(a, b), larger(c, d)));
}

/// Rows a piece should have at least, so that a piece is worth a thread's while.
inline std::int64_t row_grain(std::int64_t n) {
    return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(n, 1));
}

}  // namespace gradus::kernels
