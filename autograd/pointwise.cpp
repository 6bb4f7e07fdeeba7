// Pointwise ops and their rules.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/pointwise.h"

namespace gradus {
namespace {

/// g f⁽ᵒʳᵈᵉʳ⁾(x) as an op of its own, so that backward can be differentiated once more.
template <class Op, int order>
Tensor chain(const char* op, const Tensor& g, const Tensor& x) {
    const Tensor gx = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels::chain<Op, order>(g, x, gx);
    return record(op, gx, wrt(g, [op, x = saved(x)](const Tensor& gg) { return chain<Op, order>(op, gg, x()); }),
                  wrt(x, [op, g = saved(g), x = saved(x)](const Tensor& gg) {
                      if constexpr (order == 1)
                          return chain<Op, 2>(op, mul(gg, g()), x());
                      else
                          return fail(op, ": has no third derivative"), Tensor();
                  }));
}

template <class Op>
Tensor unary(const char* op, const Tensor& x) {
    check(!Op::integers || x.dtype() != DType::boolean, op, ": does not take bool: use cast");
    const DType dtype = is_floating(x.dtype()) || Op::integers ? x.dtype() : DType::f32;
    const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
    kernels::unary<Op>(x, y);
    return record(op, y, wrt(x, [op, x = saved(x)](const Tensor& g) { return chain<Op, 1>(op, g, x()); }));
}

/// y for operands a and b with their shapes broadcast.
Tensor result_for(const char* op, const Tensor& a, const Tensor& b, DType dtype) {
    check_devices(op, {{"a", a}, {"b", b}});
    return Tensor::empty(broadcast(op, a.shape(), b.shape()), dtype, a.device());
}

template <class Op>
Tensor binary(const char* op, const Tensor& a, const Tensor& b, DType dtype) {
    const Tensor y = result_for(op, a, b, dtype);
    kernels::binary<Op>(a, b, y);
    return y;
}

template <class Op>
Tensor binary(const Tensor& a, double b, DType dtype) {
    const Tensor y = Tensor::empty(a.shape(), dtype, a.device());
    kernels::binary<Op>(a, b, y);
    return y;
}

template <class Op>
Tensor compare(const char* op, const Tensor& a, const Tensor& b) {
    const Tensor y = result_for(op, a, b, DType::boolean);
    kernels::compare<Op>(a, b, result_type(a, b), y);
    return y;
}

template <class Op>
Tensor compare(const Tensor& a, double b) {
    const Tensor y = Tensor::empty(a.shape(), DType::boolean, a.device());
    const bool exact = is_floating(a.dtype()) || (b == std::floor(b) && std::abs(b) < 0x1p63);
    kernels::compare<Op>(a, b, exact ? a.dtype() : DType::f64, y);
    return y;
}

DType divided(DType type) { return is_floating(type) ? type : DType::f32; }

}  // namespace

Tensor neg(const Tensor& x) {
    check(x.dtype() != DType::boolean, "neg: does not take bool: use logical_not");
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels::unary<pointwise::Neg>(x, y);
    return record("neg", y, wrt(x, [](const Tensor& g) { return neg(g); }));
}
Tensor abs(const Tensor& x) { return unary<pointwise::Abs>("abs", x); }
Tensor exp(const Tensor& x) { return unary<pointwise::Exp>("exp", x); }
Tensor expm1(const Tensor& x) { return unary<pointwise::Expm1>("expm1", x); }
Tensor log(const Tensor& x) { return unary<pointwise::Log>("log", x); }
Tensor log1p(const Tensor& x) { return unary<pointwise::Log1p>("log1p", x); }
Tensor sqrt(const Tensor& x) { return unary<pointwise::Sqrt>("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary<pointwise::Rsqrt>("rsqrt", x); }
Tensor reciprocal(const Tensor& x) { return unary<pointwise::Reciprocal>("reciprocal", x); }
Tensor square(const Tensor& x) { return unary<pointwise::Square>("square", x); }
Tensor sin(const Tensor& x) { return unary<pointwise::Sin>("sin", x); }
Tensor cos(const Tensor& x) { return unary<pointwise::Cos>("cos", x); }
Tensor tan(const Tensor& x) { return unary<pointwise::Tan>("tan", x); }
Tensor tanh(const Tensor& x) { return unary<pointwise::Tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<pointwise::Sigmoid>("sigmoid", x); }
Tensor relu_slope(const Tensor& g, const Tensor& x) { return chain<pointwise::Relu, 1>("relu", g, x); }
Tensor relu(const Tensor& x) { return unary<pointwise::Relu>("relu", x); }
Tensor gelu(const Tensor& x) { return unary<pointwise::Gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) { return unary<pointwise::GeluTanh>("gelu_tanh", x); }
Tensor silu(const Tensor& x) { return unary<pointwise::Silu>("silu", x); }
Tensor softplus(const Tensor& x) { return unary<pointwise::Softplus>("softplus", x); }
Tensor erf(const Tensor& x) { return unary<pointwise::Erf>("erf", x); }
Tensor sign(const Tensor& x) { return unary<pointwise::Sign>("sign", x); }
Tensor floor(const Tensor& x) { return unary<pointwise::Floor>("floor", x); }
Tensor ceil(const Tensor& x) { return unary<pointwise::Ceil>("ceil", x); }
Tensor round(const Tensor& x) { return unary<pointwise::Round>("round", x); }

Tensor clamp(const Tensor& x, double low, double high) {
    check(!(low > high), "clamp: low ", low, " is above high ", high);
    const DType dtype = std::isfinite(low) && result_type(x, low) != x.dtype() ? result_type(x, low)
                        : std::isfinite(high)                                  ? result_type(x, high)
                                                                               : x.dtype();
    Tensor y = std::isinf(low) ? cast(detach(x), dtype) : binary<pointwise::Maximum>(x, low, dtype);
    if (!std::isinf(high)) y = binary<pointwise::Minimum>(y, high, dtype);
    if (std::isinf(low) && std::isinf(high) && dtype == x.dtype()) y = clone(y);
    return record("clamp", y, wrt(x, [x = saved(x), low, high](const Tensor& g) {
                      return where(logical_and(greater(x(), low), less(x(), high)), g, 0);
                  }));
}

Tensor is_nan(const Tensor& x) { return compare<pointwise::NotEqual>("is_nan", x, x); }
Tensor is_inf(const Tensor& x) { return logical_and(logical_not(is_finite(x)), equal(detach(x), detach(x))); }
Tensor is_finite(const Tensor& x) {
    if (!is_floating(x.dtype())) return full(x.shape(), 1, DType::boolean, x.device());
    return less(abs(detach(x)), INFINITY);
}

Tensor add(const Tensor& a, const Tensor& b) {
    return record("add", binary<pointwise::Add>("add", a, b, result_type(a, b)),
                  wrt(a, [a = Form(a)](const Tensor& g) { return a.fit(g); }),
                  wrt(b, [b = Form(b)](const Tensor& g) { return b.fit(g); }));
}

Tensor sub(const Tensor& a, const Tensor& b) {
    return record("sub", binary<pointwise::Sub>("sub", a, b, result_type(a, b)),
                  wrt(a, [a = Form(a)](const Tensor& g) { return a.fit(g); }),
                  wrt(b, [b = Form(b)](const Tensor& g) { return b.fit(neg(g)); }));
}

Tensor mul(const Tensor& a, const Tensor& b) {
    return record("mul", binary<pointwise::Mul>("mul", a, b, result_type(a, b)),
                  wrt(a, [a = Form(a), b = saved(b)](const Tensor& g) { return a.fit(mul(g, b())); }),
                  wrt(b, [b = Form(b), a = saved(a)](const Tensor& g) { return b.fit(mul(g, a())); }));
}

Tensor div(const Tensor& a, const Tensor& b) {
    return record("div", binary<pointwise::Div>("div", a, b, divided(result_type(a, b))),
                  wrt(a, [a = Form(a), b = saved(b)](const Tensor& g) { return a.fit(div(g, b())); }),
                  wrt(b, [form = Form(b), b = saved(b)](const Tensor& g, const Tensor& y) {
                      return form.fit(neg(div(mul(g, y), b())));
                  }));
}

Tensor pow(const Tensor& a, const Tensor& b) {
    return record("pow", binary<pointwise::Pow>("pow", a, b, result_type(a, b)),
                  wrt(a,
                      [form = Form(a), a = saved(a), b = saved(b)](const Tensor& g) {
                          return form.fit(mul(
                              g, where(logical_and(equal(a(), 0), equal(b(), 0)), 0, mul(b(), pow(a(), sub(b(), 1))))));
                      }),
                  wrt(b, [form = Form(b), a = saved(a)](const Tensor& g, const Tensor& y) {
                      return form.fit(mul(g, where(equal(a(), 0), 0, mul(y, log(a())))));
                  }));
}

namespace {

/// The share of g for the winner x against `other`: all where it wins, half at a tie.
template <class Wins>
Tensor winners_share(const Tensor& g, const Tensor& x, const Tensor& other, Wins wins) {
    return where(wins(x, other), g, where(equal(x, other), mul(g, 0.5), 0));
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
    const auto wins = [](const Tensor& x, const Tensor& other) { return greater(x, other); };
    return record("maximum", binary<pointwise::Maximum>("maximum", a, b, result_type(a, b)),
                  wrt(a, [form = Form(a), a = saved(a), b = saved(b),
                          wins](const Tensor& g) { return form.fit(winners_share(g, a(), b(), wins)); }),
                  wrt(b, [form = Form(b), a = saved(a), b = saved(b), wins](const Tensor& g) {
                      return form.fit(winners_share(g, b(), a(), wins));
                  }));
}

Tensor minimum(const Tensor& a, const Tensor& b) {
    const auto wins = [](const Tensor& x, const Tensor& other) { return less(x, other); };
    return record("minimum", binary<pointwise::Minimum>("minimum", a, b, result_type(a, b)),
                  wrt(a, [form = Form(a), a = saved(a), b = saved(b),
                          wins](const Tensor& g) { return form.fit(winners_share(g, a(), b(), wins)); }),
                  wrt(b, [form = Form(b), a = saved(a), b = saved(b), wins](const Tensor& g) {
                      return form.fit(winners_share(g, b(), a(), wins));
                  }));
}

Tensor add(const Tensor& a, double b) {
    return record("add", binary<pointwise::Add>(a, b, result_type(a, b)), wrt(a, [](const Tensor& g) { return g; }));
}
Tensor sub(const Tensor& a, double b) { return add(a, -b); }
Tensor sub(double a, const Tensor& b) {
    const Tensor y = Tensor::empty(b.shape(), result_type(b, a), b.device());
    kernels::binary<pointwise::Sub>(a, b, y);
    return record("sub", y, wrt(b, [](const Tensor& g) { return neg(g); }));
}
Tensor mul(const Tensor& a, double b) {
    return record("mul", binary<pointwise::Mul>(a, b, result_type(a, b)),
                  wrt(a, [b](const Tensor& g) { return mul(g, b); }));
}
Tensor div(const Tensor& a, double b) {
    return record("div", binary<pointwise::Div>(a, b, divided(a.dtype())),
                  wrt(a, [b](const Tensor& g) { return div(g, b); }));
}
Tensor div(double a, const Tensor& b) {
    const Tensor y = Tensor::empty(b.shape(), divided(b.dtype()), b.device());
    kernels::binary<pointwise::Div>(a, b, y);
    return record("div", y,
                  wrt(b, [b = saved(b)](const Tensor& g, const Tensor& y) { return neg(div(mul(g, y), b())); }));
}
Tensor pow(const Tensor& a, double b) {
    return record("pow", binary<pointwise::Pow>(a, b, result_type(a, b)), wrt(a, [a = saved(a), b](const Tensor& g) {
                      return b == 0 ? zeros_like(a()) : mul(g, mul(pow(a(), b - 1), b));
                  }));
}
Tensor maximum(const Tensor& a, double b) { return maximum(a, Tensor::scalar(b, result_type(a, b), a.device())); }
Tensor minimum(const Tensor& a, double b) { return minimum(a, Tensor::scalar(b, result_type(a, b), a.device())); }

Tensor equal(const Tensor& a, const Tensor& b) { return compare<pointwise::Equal>("equal", a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return compare<pointwise::NotEqual>("not_equal", a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return compare<pointwise::Less>("less", a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return compare<pointwise::LessEqual>("less_equal", a, b); }
Tensor greater(const Tensor& a, const Tensor& b) { return compare<pointwise::Greater>("greater", a, b); }
Tensor greater_equal(const Tensor& a, const Tensor& b) {
    return compare<pointwise::GreaterEqual>("greater_equal", a, b);
}
Tensor equal(const Tensor& a, double b) { return compare<pointwise::Equal>(a, b); }
Tensor not_equal(const Tensor& a, double b) { return compare<pointwise::NotEqual>(a, b); }
Tensor less(const Tensor& a, double b) { return compare<pointwise::Less>(a, b); }
Tensor less_equal(const Tensor& a, double b) { return compare<pointwise::LessEqual>(a, b); }
Tensor greater(const Tensor& a, double b) { return compare<pointwise::Greater>(a, b); }
Tensor greater_equal(const Tensor& a, double b) { return compare<pointwise::GreaterEqual>(a, b); }

namespace {

template <class Op>
Tensor logic(const char* op, const Tensor& a, const Tensor& b) {
    check_bool(op, "a", a), check_bool(op, "b", b);
    return compare<Op>(op, a, b);
}

}  // namespace

Tensor logical_not(const Tensor& x) {
    check_bool("logical_not", "x", x);
    return equal(x, 0);
}
Tensor logical_and(const Tensor& a, const Tensor& b) { return logic<pointwise::And>("logical_and", a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return logic<pointwise::Or>("logical_or", a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return logic<pointwise::Xor>("logical_xor", a, b); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
    check_bool("where", "condition", condition);
    check_devices("where", {{"condition", condition}, {"a", a}, {"b", b}});
    const Shape shape = broadcast("where", condition.shape(), broadcast("where", a.shape(), b.shape()));
    const Tensor y = Tensor::empty(shape, result_type(a, b), a.device());
    kernels::where(condition, a, b, y);
    return record("where", y,
                  wrt(a, [a = Form(a), c = saved(condition)](const Tensor& g) { return a.fit(where(c(), g, 0)); }),
                  wrt(b, [b = Form(b), c = saved(condition)](const Tensor& g) { return b.fit(where(c(), 0, g)); }));
}

namespace {

Tensor where_number(const Tensor& condition, const Tensor& x, double number, bool tensor_first) {
    check_bool("where", "condition", condition);
    check_devices("where", {{"condition", condition}, {"x", x}});
    const bool stays_bool = x.dtype() == DType::boolean && (number == 0 || number == 1);
    const DType dtype = stays_bool              ? DType::boolean
                        : std::isfinite(number) ? result_type(x, number)
                                                : divided(x.dtype());
    check_holds("where", dtype, number);
    const Tensor y = Tensor::empty(broadcast("where", condition.shape(), x.shape()), dtype, x.device());
    if (tensor_first)
        kernels::where(condition, x, number, y);
    else
        kernels::where(condition, number, x, y);
    return record("where", y, wrt(x, [x = Form(x), c = saved(condition), tensor_first](const Tensor& g) {
                      return x.fit(tensor_first ? where(c(), g, 0) : where(c(), 0, g));
                  }));
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, double b) { return where_number(condition, a, b, true); }
Tensor where(const Tensor& condition, double a, const Tensor& b) { return where_number(condition, b, a, false); }

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
    check_bool("masked_fill", "mask", mask);
    check_devices("masked_fill", {{"x", x}, {"mask", mask}});
    check_holds("masked_fill", x.dtype(), value);
    const Tensor y = Tensor::empty(broadcast("masked_fill", x.shape(), mask.shape()), x.dtype(), x.device());
    kernels::where(mask, value, x, y);
    return record("masked_fill", y,
                  wrt(x, [x = Form(x), m = saved(mask)](const Tensor& g) { return x.fit(masked_fill(g, m(), 0)); }));
}

namespace {

/// bool (rows, columns): column <= row + diagonal.
Tensor lower_triangle(const char* op, const Tensor& x, std::int64_t diagonal) {
    check(x.rank() >= 2, op, ": needs at least two axes: got shape ", x.shape());
    diagonal = std::clamp(diagonal, -x.size(-2) - 1, x.size(-1) + 1);  // further out nothing changes
    const Tensor rows = arange(double(diagonal), double(diagonal + x.size(-2)), 1, DType::i64, x.device());
    return greater_equal(unsqueeze(rows, 1), arange(x.size(-1), DType::i64, x.device()));
}

}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal) { return where(lower_triangle("tril", x, diagonal), x, 0); }
Tensor triu(const Tensor& x, std::int64_t diagonal) {
    const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
    return where(lower_triangle("triu", x, diagonal == lowest ? lowest : diagonal - 1), 0, x);
}

}  // namespace gradus
