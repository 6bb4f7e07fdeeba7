// ONNX's elementwise ops in terms of Gradus.
#include <cmath>
#include <limits>

#include "gradus/autograd/ops.h"
#include "gradus/core/error.h"
#include "gradus/tests/onnx_cases.h"

namespace gradus::onnx {
namespace {

template <Tensor (*f)(const Tensor&)>
Tensors unary(const Call& call) {
    return {f(call[0])};
}

// Before version 7 the second operand lay from `axis` on, not at the right.
Tensor aligned(const Call& call) {
    const Tensor& b = call[1];
    if (call.opset() >= 7 || !call.has("axis")) return b;
    Shape shape = b.shape();
    while (shape.rank() + call.integer("axis", 0) < call[0].rank()) shape.push_back(1);
    return reshape(b, shape);
}

template <Tensor (*f)(const Tensor&, const Tensor&)>
Tensors binary(const Call& call) {
    return {f(call[0], aligned(call))};
}

template <Tensor (*f)(const Tensor&, const Tensor&)>
Tensors fold(const Call& call) {
    Tensor y = call[0];
    for (int i = 1; i < call.inputs(); ++i) y = f(y, call[i]);
    return {y};
}

Tensor as_f64(const Tensor& x) { return cast(x, DType::f64); }

// ONNX divides integers as C does.
Tensor divide(const Tensor& a, const Tensor& b) {
    if (is_floating(a.dtype())) return a / b;
    return cast(as_f64(a) / as_f64(b), a.dtype());
}

Tensors mod(const Call& call) {
    const Tensor a = as_f64(call[0]);
    const Tensor b = as_f64(call[1]);
    const Tensor q = a / b;
    // The remainder has the sign of the divisor, or with fmod that of the dividend.
    const Tensor whole = call.integer("fmod", 0) ? where(less(q, 0.0), ceil(q), floor(q)) : floor(q);
    return {cast(a - whole * b, call[0].dtype())};
}

// The result has the type of the base.
Tensors power(const Call& call) {
    const Tensor& a = call[0];
    const Tensor b = aligned(call);
    if (a.dtype() == b.dtype() && is_floating(a.dtype())) return {pow(a, b)};
    return {cast(pow(as_f64(a), as_f64(b)), a.dtype())};
}

Tensors clip(const Call& call) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double low = call.has(1) ? call[1].item() : call.real("min", -infinity);
    const double high = call.has(2) ? call[2].item() : call.real("max", infinity);
    return {clamp(call[0], low, high)};
}

Tensor elu(const Tensor& x, double alpha) { return where(greater(x, 0.0), x, alpha * expm1(x)); }

Tensors selu(const Call& call) {
    const double gamma = call.real("gamma", 1.0507010221481323);
    return {gamma * elu(call[0], call.real("alpha", 1.6732631921768188))};
}

Tensors celu(const Call& call) {
    const double alpha = call.real("alpha", 1.0);
    return {relu(call[0]) + minimum(alpha * expm1(call[0] / alpha), 0.0)};
}

Tensors prelu(const Call& call) {
    const Tensor& x = call[0];
    Tensor slope = call[1];
    // Before version 7 a vector of slopes belonged to axis 1.
    if (call.opset() < 7 && slope.numel() > 1) {
        Shape shape = Shape::filled(x.rank(), 1);
        shape[1] = slope.numel();
        slope = reshape(slope, shape);
    }
    return {where(less(x, 0.0), slope * x, x)};
}

Tensors shrink(const Call& call) {
    const Tensor& x = call[0];
    const double bias = call.real("bias", 0.0);
    const double lambda = call.real("lambd", 0.5);
    const Tensor outside = where(less(x, 0.0), x + bias, x - bias);
    return {where(greater(abs(x), lambda), outside, 0.0)};
}

Tensors infinite(const Call& call) {
    const Tensor& x = call[0];
    Tensor found = is_inf(x);
    if (!call.integer("detect_negative", 1)) found = logical_and(found, greater(x, 0.0));
    if (!call.integer("detect_positive", 1)) found = logical_and(found, less(x, 0.0));
    return {found};
}

Tensors cast_to(const Call& call) {
    const std::optional<DType> to = dtype(static_cast<Type>(call.integer("to", 0)));
    check(to.has_value(), "Cast: no such type in Gradus");
    return {cast(call[0], *to)};
}

Tensor sinh(const Tensor& x) { return (exp(x) - exp(-x)) / 2.0; }
Tensor cosh(const Tensor& x) { return (exp(x) + exp(-x)) / 2.0; }
Tensor asinh(const Tensor& x) { return log(x + sqrt(square(x) + 1.0)); }
Tensor acosh(const Tensor& x) { return log(x + sqrt(square(x) - 1.0)); }
Tensor atanh(const Tensor& x) { return (log1p(x) - log1p(-x)) / 2.0; }
Tensor softsign(const Tensor& x) { return x / (1.0 + abs(x)); }
Tensor hard_swish(const Tensor& x) { return x * clamp(x / 6.0 + 0.5, 0.0, 1.0); }

}  // namespace

Cases pointwise_cases() {
    return {
        {"Abs", unary<abs>},
        {"Acosh", unary<acosh>},
        {"Asinh", unary<asinh>},
        {"Atanh", unary<atanh>},
        {"Ceil", unary<ceil>},
        {"Cos", unary<cos>},
        {"Cosh", unary<cosh>},
        {"Erf", unary<erf>},
        {"Exp", unary<exp>},
        {"Floor", unary<floor>},
        {"HardSwish", unary<hard_swish>},
        {"IsNaN", unary<is_nan>},
        {"Log", unary<log>},
        {"Neg", unary<neg>},
        {"Not", unary<logical_not>},
        {"Reciprocal", unary<reciprocal>},
        {"Relu", unary<relu>},
        {"Round", unary<round>},
        {"Sigmoid", unary<sigmoid>},
        {"Sign", unary<sign>},
        {"Sin", unary<sin>},
        {"Sinh", unary<sinh>},
        {"Softplus", unary<softplus>},
        {"Softsign", unary<softsign>},
        {"Sqrt", unary<sqrt>},
        {"Tan", unary<tan>},
        {"Tanh", unary<tanh>},

        {"Add", binary<add>},
        {"And", binary<logical_and>},
        {"Div", binary<divide>},
        {"Equal", binary<equal>},
        {"Greater", binary<greater>},
        {"GreaterOrEqual", binary<greater_equal>},
        {"Less", binary<less>},
        {"LessOrEqual", binary<less_equal>},
        {"Mod", mod},
        {"Mul", binary<mul>},
        {"Or", binary<logical_or>},
        {"Pow", power},
        {"Sub", binary<sub>},
        {"Xor", binary<logical_xor>},

        {"Max", fold<maximum>},
        {"Min", fold<minimum>},
        {"Sum", fold<add>},
        {"Mean", [](const Call& call) -> Tensors { return {fold<add>(call)[0] / double(call.inputs())}; }},

        {"Cast", cast_to},
        {"CastLike", [](const Call& call) -> Tensors { return {cast(call[0], call[1].dtype())}; }},
        {"Celu", celu},
        {"Clip", clip},
        {"Elu", [](const Call& call) -> Tensors { return {elu(call[0], call.real("alpha", 1.0))}; }},
        {"HardSigmoid",
         [](const Call& call) -> Tensors {
             return {clamp(call.real("alpha", 0.2) * call[0] + call.real("beta", 0.5), 0.0, 1.0)};
         }},
        {"Identity", [](const Call& call) -> Tensors { return {call[0]}; }},
        {"IsInf", infinite},
        {"LeakyRelu",
         [](const Call& call) -> Tensors {
             return {where(less(call[0], 0.0), call.real("alpha", 0.01) * call[0], call[0])};
         }},
        {"PRelu", prelu},
        {"Selu", selu},
        {"Shrink", shrink},
        {"ThresholdedRelu",
         [](const Call& call) -> Tensors { return {where(greater(call[0], call.real("alpha", 1.0)), call[0], 0.0)}; }},
        {"Where", [](const Call& call) -> Tensors { return {where(call[0], call[1], call[2])}; }},
    };
}

}  // namespace gradus::onnx
