// Dual numbers: a value with its derivative. A formula run on them yields its own slope, which gives every pointwise op
// its second derivative.
#pragma once

#include "gradus/kernels/math.h"
#ifndef __CUDACC__
#include "gradus/kernels/simd.h"  // a formula must see the packs' functions where it is written
#endif

namespace gradus {

template <class V>
struct Dual {
    V v, d;  ///< value and derivative
    GRADUS_FN friend Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
    GRADUS_FN friend Dual operator-(Dual a, Dual b) { return {a.v - b.v, a.d - b.d}; }
    GRADUS_FN friend Dual operator-(Dual a) { return {-a.v, -a.d}; }
    GRADUS_FN friend Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
    GRADUS_FN friend Dual operator/(Dual a, Dual b) {
        const V q = a.v / b.v;
        return {q, (a.d - q * b.d) / b.v};
    }
    GRADUS_FN friend auto operator<(Dual a, Dual b) { return a.v < b.v; }
    GRADUS_FN friend auto operator>(Dual a, Dual b) { return a.v > b.v; }
    GRADUS_FN friend auto operator==(Dual a, Dual b) { return a.v == b.v; }
    GRADUS_FN friend auto operator!=(Dual a, Dual b) { return a.v != b.v; }
};

namespace math {

template <class V>
struct Constant<Dual<V>> {
    GRADUS_FN static Dual<V> of(double c) { return {k<V>(c), k<V>(0)}; }
};
template <class V, class M>
GRADUS_FN Dual<V> select(const M& mask, const Dual<V>& a, const Dual<V>& b) {
    return {select(mask, a.v, b.v), select(mask, a.d, b.d)};
}
template <class V>
GRADUS_FN Dual<V> exp(Dual<V> x) {
    const V y = exp(x.v);
    return {y, x.d * y};
}
template <class V>
GRADUS_FN Dual<V> log(Dual<V> x) {
    return {log(x.v), x.d / x.v};
}
template <class V>
GRADUS_FN Dual<V> sqrt(Dual<V> x) {
    const V y = sqrt(x.v);
    return {y, x.d * k<V>(0.5) / y};
}
template <class V>
GRADUS_FN Dual<V> sin(Dual<V> x) {
    return {sin(x.v), x.d * cos(x.v)};
}
template <class V>
GRADUS_FN Dual<V> cos(Dual<V> x) {
    return {cos(x.v), -x.d * sin(x.v)};
}
template <class V>
GRADUS_FN Dual<V> tan(Dual<V> x) {
    const V y = tan(x.v);
    return {y, x.d * (k<V>(1) + y * y)};
}
template <class V>
GRADUS_FN Dual<V> tanh(Dual<V> x) {
    const V y = tanh(x.v);
    return {y, x.d * (k<V>(1) - y * y)};
}
template <class V>
GRADUS_FN Dual<V> erf(Dual<V> x) {
    return {erf(x.v), x.d * k<V>(1.1283791670955126) * exp(-x.v * x.v)};
}

}  // namespace math
}  // namespace gradus
