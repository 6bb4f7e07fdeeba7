// Rows of the op table: pointwise ops, comparisons, logic.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using Shapes = std::vector<std::vector<Sizes>>;
const Shapes one_operand = {{{0}}, {{1}}, {{31}}, {{33}}, {{1025}}, {{}}, {{3, 4, 5}}, {{2, 0, 3}}, {{33, 31}}};
const Shapes two_operands = {
    {{0}, {0}},    {{1}, {1}}, {{31}, {31}},           {{33}, {33}},     {{1025}, {1025}}, {{}, {}},
    {{3, 4}, {4}}, {{4}, {}},  {{2, 1, 3}, {1, 4, 3}}, {{2, 1}, {1, 3}}, {{1}, {2, 0, 3}}, {{33, 31}, {33, 31}}};

struct Unary {
    Tensor (*op)(const Tensor&);
    double (*formula)(double);
};
struct Binary {
    Tensor (*op)(const Tensor&, const Tensor&);
    double (*formula)(double, double);
};

OpRow unary(const char* name, Unary u, Operand x = number()) {
    return {.name = name,
            .operands = {std::move(x)},
            .shapes = one_operand,
            .call = [op = u.op](const Tensors& t) { return op(t[0]); },
            .expect = [f = u.formula](const Arrays& a) { return reference::map(a[0], f); }};
}

OpRow binary(const char* name, Binary u, Operand a = number(), Operand b = number()) {
    return {.name = name,
            .operands = {std::move(a), std::move(b)},
            .shapes = two_operands,
            .call = [op = u.op](const Tensors& t) { return op(t[0], t[1]); },
            .expect = [f = u.formula](const Arrays& x) { return reference::zip(x[0], x[1], f); }};
}

/// An op whose other operand is a number on the host.
template <class Op>
OpRow scalar(const char* name, Op op, double (*formula)(double), Operand x = number()) {
    return {.name = name,
            .operands = {std::move(x)},
            .shapes = {{{33}}, {{}}, {{0}}, {{3, 5}}},
            .call = [op](const Tensors& t) { return op(t[0]); },
            .expect = [formula](const Arrays& a) { return reference::map(a[0], formula); }};
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

void add_unary(OpRows& rows) {
    const Operand positive = number(0.2, 3), off_zero = number(-2, 2, {0});
    rows.add(unary("neg", {neg, [](double x) { return -x; }})).with_integers();
    rows.add(unary("abs", {abs, [](double x) { return std::abs(x); }}, off_zero)).with_integers();
    rows.add(unary("exp", {exp, [](double x) { return std::exp(x); }}));
    rows.add(unary("expm1", {expm1, [](double x) { return std::expm1(x); }}));
    rows.add(unary("log", {log, [](double x) { return std::log(x); }}, positive));
    rows.add(unary("log1p", {log1p, [](double x) { return std::log1p(x); }}, number(-0.8, 3)));
    rows.add(unary("sqrt", {sqrt, [](double x) { return std::sqrt(x); }}, positive));
    rows.add(unary("rsqrt", {rsqrt, [](double x) { return 1 / std::sqrt(x); }}, positive));
    rows.add(unary("reciprocal", {reciprocal, [](double x) { return 1 / x; }}, number(-2, 2, {-0.1, 0, 0.1})));
    rows.add(unary("square", {square, [](double x) { return x * x; }})).with_integers();
    rows.add(unary("sin", {sin, [](double x) { return std::sin(x); }}, number(-20, 20)));
    rows.add(unary("cos", {cos, [](double x) { return std::cos(x); }}, number(-20, 20)));
    rows.add(unary("tan", {tan, [](double x) { return std::tan(x); }}, number(-1.2, 1.2)));
    rows.add(unary("tanh", {tanh, [](double x) { return std::tanh(x); }}, number(-6, 6)));
    rows.add(unary("sigmoid", {sigmoid, sigmoid_of}, number(-8, 8)));
    rows.add(unary("relu", {relu, [](double x) { return std::max(x, 0.0); }}, off_zero)).with_integers();
    rows.add(unary("gelu", {gelu, [](double x) { return x * normal_below(x); }}, number(-4, 4)));
    rows.add(unary(
        "gelu_tanh",
        {gelu_tanh, [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
        number(-4, 4)));
    rows.add(unary("silu", {silu, [](double x) { return x * sigmoid_of(x); }}, number(-6, 6)));
    rows.add(unary("softplus", {softplus, [](double x) { return std::log1p(std::exp(x)); }}, number(-8, 8)));
    rows.add(unary("erf", {erf, [](double x) { return std::erf(x); }}, number(-4, 4)));
    rows.add(unary("sign", {sign, [](double x) { return double((x > 0) - (x < 0)); }}, off_zero)).with_integers();
    const Operand off_steps = number(-2, 2, {-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2});
    rows.add(unary("floor", {floor, [](double x) { return std::floor(x); }}, off_steps));
    rows.add(unary("ceil", {ceil, [](double x) { return std::ceil(x); }}, off_steps));
    rows.add(unary("round", {round, [](double x) { return std::nearbyint(x); }}, off_steps));
    rows.add(unary("is_nan", {is_nan, [](double x) { return double(std::isnan(x)); }}))
        .no_gradient()
        .gives(boolean_result);
    rows.add(unary("is_inf", {is_inf, [](double x) { return double(std::isinf(x)); }}))
        .no_gradient()
        .gives(boolean_result);
    rows.add(unary("is_finite", {is_finite, [](double x) { return double(std::isfinite(x)); }}))
        .no_gradient()
        .gives(boolean_result);
    rows.add(scalar(
        "clamp", [](const Tensor& x) { return clamp(x, -1, 0.75); }, [](double x) { return std::clamp(x, -1.0, 0.75); },
        number(-2, 2, {-1, 0.75})));
}

void add_binary(OpRows& rows) {
    const Operand divisor = number(-2, 2, {-0.1, 0, 0.1});
    rows.add(binary("add", {add, [](double a, double b) { return a + b; }})).with_integers();
    rows.add(binary("sub", {sub, [](double a, double b) { return a - b; }})).with_integers();
    rows.add(binary("mul", {mul, [](double a, double b) { return a * b; }})).with_integers();
    rows.add(binary("div", {div, [](double a, double b) { return a / b; }}, number(), divisor));
    rows.add(binary("div of integers", {div, [](double a, double b) { return a / b; }}, number(-9, 9), number(1, 6)))
        .with_integers()
        .gives(float_result);
    rows.add(binary("pow", {pow, [](double a, double b) { return std::pow(a, b); }}, number(0.2, 3)));
    rows.add(binary("maximum", {maximum, [](double a, double b) { return std::max(a, b); }})).with_integers();
    rows.add(binary("minimum", {minimum, [](double a, double b) { return std::min(a, b); }})).with_integers();
}

void add_scalar(OpRows& rows) {
    const Operand divisor = number(-2, 2, {-0.1, 0, 0.1}), positive = number(0.2, 3);
    rows.add(scalar(
                 "add number", [](const Tensor& x) { return x + 3; }, [](double x) { return x + 3; }))
        .with_integers();
    rows.add(scalar(
                 "add to number", [](const Tensor& x) { return 3 + x; }, [](double x) { return 3 + x; }))
        .with_integers();
    rows.add(scalar(
                 "sub number", [](const Tensor& x) { return x - 3; }, [](double x) { return x - 3; }))
        .with_integers();
    rows.add(scalar(
                 "sub from number", [](const Tensor& x) { return 3 - x; }, [](double x) { return 3 - x; }))
        .with_integers();
    rows.add(scalar(
                 "mul number", [](const Tensor& x) { return x * 3; }, [](double x) { return x * 3; }))
        .with_integers();
    rows.add(scalar(
                 "div number", [](const Tensor& x) { return x / 4; }, [](double x) { return x / 4; }))
        .with_integers()
        .gives(float_result);
    rows.add(scalar(
        "div of number", [](const Tensor& x) { return 3 / x; }, [](double x) { return 3 / x; }, divisor));
    rows.add(scalar(
        "pow 3", [](const Tensor& x) { return pow(x, 3.0); }, [](double x) { return x * x * x; }));
    rows.add(scalar(
        "pow 2", [](const Tensor& x) { return pow(x, 2.0); }, [](double x) { return x * x; }));
    rows.add(scalar(
        "pow 0", [](const Tensor& x) { return pow(x, 0.0); }, [](double) { return 1.0; }));
    rows.add(scalar(
        "pow -1.5", [](const Tensor& x) { return pow(x, -1.5); }, [](double x) { return std::pow(x, -1.5); },
        positive));
    const Operand off_half = number(-2, 2, {0.5});
    rows.add(scalar(
        "maximum number", [](const Tensor& x) { return maximum(x, 0.5); }, [](double x) { return std::max(x, 0.5); },
        off_half));
    rows.add(scalar(
        "minimum number", [](const Tensor& x) { return minimum(x, 0.5); }, [](double x) { return std::min(x, 0.5); },
        off_half));
}

void add_comparisons(OpRows& rows) {
    const auto compare = [&](const char* name, Binary u, Tensor (*with_number)(const Tensor&, double)) {
        rows.add(binary(name, u, number(-3, 3), number(-3, 3))).no_gradient().with_integers().gives(boolean_result);
        OpRow row = unary(name, {nullptr, nullptr}, number(-3, 3));
        row.name += " number";
        row.call = [with_number](const Tensors& t) { return with_number(t[0], 1); };
        row.expect = [f = u.formula](const Arrays& a) {
            return reference::map(a[0], [&](double x) { return f(x, 1); });
        };
        rows.add(row).no_gradient().with_integers().gives(boolean_result);
    };
    compare("equal", {equal, [](double a, double b) { return double(a == b); }}, equal);
    compare("not_equal", {not_equal, [](double a, double b) { return double(a != b); }}, not_equal);
    compare("less", {less, [](double a, double b) { return double(a < b); }}, less);
    compare("less_equal", {less_equal, [](double a, double b) { return double(a <= b); }}, less_equal);
    compare("greater", {greater, [](double a, double b) { return double(a > b); }}, greater);
    compare("greater_equal", {greater_equal, [](double a, double b) { return double(a >= b); }}, greater_equal);
    rows.add(unary("logical_not", {logical_not, [](double x) { return double(x == 0); }}, mask()))
        .no_gradient()
        .gives(boolean_result);
    const auto logic = [&](const char* name, Binary u) {
        rows.add(binary(name, u, mask(), mask())).no_gradient().gives(boolean_result);
    };
    logic("logical_and", {logical_and, [](double a, double b) { return double(a != 0 && b != 0); }});
    logic("logical_or", {logical_or, [](double a, double b) { return double(a != 0 || b != 0); }});
    logic("logical_xor", {logical_xor, [](double a, double b) { return double((a != 0) != (b != 0)); }});
}

}  // namespace

std::vector<OpRow> pointwise_rows() {
    OpRows rows;
    add_unary(rows);
    add_binary(rows);
    add_scalar(rows);
    add_comparisons(rows);
    return rows.take();
}

}  // namespace gradus::tests
