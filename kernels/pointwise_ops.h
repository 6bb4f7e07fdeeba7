// Every pointwise formula and its slope, a line each; serves every device.
//
// A unary op has f(x) and slope(x) = f'(x), written for any V: a lane, a pack, or a Dual (which differentiates the
// slope once more). `integers` says that the op keeps integers; the others turn them into f32.
#pragma once

#include "gradus/kernels/dual.h"

namespace gradus::pointwise {

using math::k;
using math::select;

template <class V>
GRADUS_FN V sigmoid(V x) {
    return k<V>(1) / (k<V>(1) + math::exp(-x));
}
template <class V>
GRADUS_FN V zero_or_nan(V x) {
    return select(x != x, x, k<V>(0));
}
template <class V>
GRADUS_FN V sign(V x) {
    return select(x > k<V>(0), k<V>(1), select(x < k<V>(0), k<V>(-1), zero_or_nan(x)));
}

#define GRADUS_UNARY(Name, keeps_integers, formula, its_slope) \
    struct Name {                                              \
        static constexpr bool integers = keeps_integers;       \
        template <class V>                                     \
        GRADUS_FN static V f(V x) {                            \
            return formula;                                    \
        }                                                      \
        template <class V>                                     \
        GRADUS_FN static V slope(V x) {                        \
            return its_slope;                                  \
        }                                                      \
    };
GRADUS_UNARY(Neg, true, -x, (void(x), k<V>(-1)))
GRADUS_UNARY(Abs, true, math::abs(x), sign(x))
GRADUS_UNARY(Exp, false, math::exp(x), math::exp(x))
GRADUS_UNARY(Expm1, false, math::expm1(x), math::exp(x))
GRADUS_UNARY(Log, false, math::log(x), k<V>(1) / x)
GRADUS_UNARY(Log1p, false, math::log1p(x), k<V>(1) / (k<V>(1) + x))
GRADUS_UNARY(Sqrt, false, math::sqrt(x), k<V>(0.5) / math::sqrt(x))
GRADUS_UNARY(Rsqrt, false, k<V>(1) / math::sqrt(x), k<V>(-0.5) / (x * math::sqrt(x)))
GRADUS_UNARY(Reciprocal, false, k<V>(1) / x, k<V>(-1) / (x * x))
GRADUS_UNARY(Square, true, x* x, k<V>(2) * x)
GRADUS_UNARY(Sin, false, math::sin(x), math::cos(x))
GRADUS_UNARY(Cos, false, math::cos(x), -math::sin(x))
GRADUS_UNARY(Tan, false, math::tan(x), k<V>(1) + math::tan(x) * math::tan(x))
GRADUS_UNARY(Tanh, false, math::tanh(x), k<V>(1) - math::tanh(x) * math::tanh(x))
GRADUS_UNARY(Sigmoid, false, sigmoid(x), sigmoid(x) * sigmoid(-x))
GRADUS_UNARY(Silu, false, x* sigmoid(x), sigmoid(x) * (k<V>(1) + x * sigmoid(-x)))
GRADUS_UNARY(Softplus, false, select(x > k<V>(0), x, zero_or_nan(x)) + math::log1p(math::exp(-math::abs(x))),
             sigmoid(x))
GRADUS_UNARY(Erf, false, math::erf(x), k<V>(1.1283791670955126) * math::exp(-x * x))
GRADUS_UNARY(Sign, true, sign(x), (void(x), k<V>(0)))
GRADUS_UNARY(Floor, true, math::floor(x), (void(x), k<V>(0)))
GRADUS_UNARY(Ceil, true, math::ceil(x), (void(x), k<V>(0)))
GRADUS_UNARY(Round, true, math::nearbyint(x), (void(x), k<V>(0)))
#undef GRADUS_UNARY

/// max(x, 0). Its gradient selects instead of multiplying, so that an infinite g behind a closed unit stays 0.
struct Relu {
    static constexpr bool integers = true;
    template <class V>
    GRADUS_FN static V f(V x) {
        return select(x < k<V>(0), k<V>(0), x);
    }
    template <class V>
    GRADUS_FN static V slope(V x) {
        return select(x > k<V>(0), k<V>(1), k<V>(0));
    }
    template <class V>
    GRADUS_FN static V chain(V g, V x) {
        return select(x > k<V>(0), g, zero_or_nan(x));
    }
};

/// x Φ(x) with Φ(x) = (1 + erf(x / √2)) / 2; slope Φ(x) + x φ(x).
struct Gelu {
    static constexpr bool integers = false;
    template <class V>
    GRADUS_FN static V phi(V x) {
        return k<V>(0.5) * (k<V>(1) + math::erf(x * k<V>(0.7071067811865476)));
    }
    template <class V>
    GRADUS_FN static V f(V x) {
        return x * phi(x);
    }
    template <class V>
    GRADUS_FN static V slope(V x) {
        return phi(x) + x * k<V>(0.3989422804014327) * math::exp(k<V>(-0.5) * x * x);
    }
};

/// x/2 (1 + tanh u), u = √(2/π) (x + 0.044715 x³). Hendrycks and Gimpel, arXiv 1606.08415.
struct GeluTanh {
    static constexpr bool integers = false;
    template <class V>
    GRADUS_FN static V t(V x) {
        return math::tanh(k<V>(0.7978845608028654) * (x + k<V>(0.044715) * x * x * x));
    }
    template <class V>
    GRADUS_FN static V f(V x) {
        return k<V>(0.5) * x * (k<V>(1) + t(x));
    }
    template <class V>
    GRADUS_FN static V slope(V x) {
        const V tx = t(x), du = k<V>(0.7978845608028654) * (k<V>(1) + k<V>(3 * 0.044715) * x * x);
        return k<V>(0.5) * (k<V>(1) + tx) + k<V>(0.5) * x * (k<V>(1) - tx * tx) * du;
    }
};

/// g · f'(x), g · f''(x): what backward multiplies with, as one formula.
template <class Op, int order, class V>
GRADUS_FN V chain(V g, V x) {
    static_assert(order == 1 || order == 2);
    if constexpr (order == 2)
        return g * Op::slope(Dual<V>{x, k<V>(1)}).d;
    else if constexpr (requires { Op::chain(g, x); })
        return Op::chain(g, x);
    else
        return g * Op::slope(x);
}

// ---- two operands ----
struct Add {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return a + b;
    }
};
struct Sub {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return a - b;
    }
};
struct Mul {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return a * b;
    }
};
struct Div {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return a / b;
    }
};
struct Pow {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return math::pow(a, b);
    }
};
struct Maximum {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return select((a > b) | (a != a), a, b);
    }
};
struct Minimum {
    template <class V>
    GRADUS_FN static V f(V a, V b) {
        return select((a < b) | (a != a), a, b);
    }
};

// ---- comparisons and logic: lane by lane, to bool ----
struct Equal {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a == b;
    }
};
struct NotEqual {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a != b;
    }
};
struct Less {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a <= b;
    }
};
struct Greater {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a > b;
    }
};
struct GreaterEqual {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return a >= b;
    }
};
struct And {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return (a != 0) & (b != 0);
    }
};
struct Or {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return (a != 0) | (b != 0);
    }
};
struct Xor {
    template <class T>
    GRADUS_FN static bool f(T a, T b) {
        return (a != 0) != (b != 0);
    }
};

template <class... Ops>
struct List {};
using UnaryOps = List<Neg, Abs, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Reciprocal, Square, Sin, Cos, Tan, Tanh, Sigmoid,
                      Silu, Softplus, Erf, Sign, Floor, Ceil, Round, Relu, Gelu, GeluTanh>;
using BinaryOps = List<Add, Sub, Mul, Div, Pow, Maximum, Minimum>;
using CompareOps = List<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, And, Or, Xor>;

}  // namespace gradus::pointwise
