#include "gradus/kernels/pointwise.h"

#include <cmath>
#include <tuple>

#include "gradus/kernels/elementwise.h"

namespace gradus::kernels::cpu {
namespace {

/// Runs body(pack…) over n elements; the tail goes through partly filled packs.
template <class T, class Body, class... In>
void packs(std::int64_t n, T* y, Body body, const In*... x) {
    constexpr int w = lanes<T>;
    std::int64_t i = 0;
    for (; i + w <= n; i += w) store(y + i, Pack<T>(body(load(x + i)...)));
    if (i < n) {
        const int left = int(n - i);
        store_part(y + i, Pack<T>(body(load_part(x + i, left, T(1))...)), left);
    }
}

template <class Op, class T>
void unary_formula(const void* const* in, void* out, std::int64_t n) {
    packs<T>(
        n, static_cast<T*>(out), [](auto x) { return Op::f(x); }, static_cast<const T*>(in[0]));
}
template <class Op, int order, class T>
void chain_formula(const void* const* in, void* out, std::int64_t n) {
    packs<T>(
        n, static_cast<T*>(out), [](auto g, auto x) { return pointwise::chain<Op, order>(g, x); },
        static_cast<const T*>(in[0]), static_cast<const T*>(in[1]));
}
template <class Op, class T>
void binary_formula(const void* const* in, void* out, std::int64_t n) {
    packs<T>(
        n, static_cast<T*>(out), [](auto a, auto b) { return Op::f(a, b); }, static_cast<const T*>(in[0]),
        static_cast<const T*>(in[1]));
}
template <class Op, class T>
void compare_formula(const void* const* in, void* out, std::int64_t n) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    bool* y = static_cast<bool*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op::f(a[i], b[i]);
}

}  // namespace

template <class Op>
void unary(const Tensor& x, const Tensor& y) {
    const DType type = compute_type(y.dtype());
    Formula formula = type == DType::f64 ? unary_formula<Op, double> : unary_formula<Op, float>;
    if constexpr (Op::integers)
        if (type == DType::i64) formula = unary_formula<Op, std::int64_t>;
    const Operand inputs[] = {x};
    elementwise(formula, type, type, inputs, y);
}

template <class Op, int order>
void chain(const Tensor& g, const Tensor& x, const Tensor& gx) {
    const DType type = compute_type(gx.dtype());
    const Operand inputs[] = {g, x};
    elementwise(type == DType::f64 ? chain_formula<Op, order, double> : chain_formula<Op, order, float>, type, type,
                inputs, gx);
}

template <class Op>
void binary(Operand a, Operand b, const Tensor& y) {
    const DType type = compute_type(y.dtype());
    const Operand inputs[] = {a, b};
    Formula formula = type == DType::f64 ? binary_formula<Op, double> : binary_formula<Op, float>;
    if constexpr (!std::is_same_v<Op, pointwise::Div>)
        if (type == DType::i64) formula = binary_formula<Op, std::int64_t>;
    elementwise(formula, type, type, inputs, y);
}

template <class Op>
void compare(Operand a, Operand b, DType as, const Tensor& y) {
    const DType type = compute_type(as);
    const Operand inputs[] = {a, b};
    Formula formula = type == DType::f32   ? compare_formula<Op, float>
                      : type == DType::f64 ? compare_formula<Op, double>
                                           : compare_formula<Op, std::int64_t>;
    elementwise(formula, type, DType::boolean, inputs, y);
}

namespace {

template <class E>
void where_formula(const void* const* in, void* out, std::int64_t n) {
    const E *c = static_cast<const E*>(in[0]), *a = static_cast<const E*>(in[1]), *b = static_cast<const E*>(in[2]);
    E* y = static_cast<E*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : b[i];
}

template <class E>
void finite_formula(const void* const* in, void* out, std::int64_t n) {
    const E* x = static_cast<const E*>(in[0]);
    bool* y = static_cast<bool*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::isfinite(x[i]);
}

}  // namespace

void where(const Tensor& condition, Operand a, Operand b, const Tensor& y) {
    const DType type = compute_type(y.dtype());
    const Operand inputs[] = {condition, a, b};
    elementwise(type == DType::f32   ? where_formula<float>
                : type == DType::f64 ? where_formula<double>
                                     : where_formula<std::int64_t>,
                type, type, inputs, y);
}

bool all_finite(const Tensor& x) {
    const DType type = compute_type(x.dtype());
    if (type == DType::i64) return true;
    const Tensor finite = Tensor::empty(x.shape(), DType::boolean, x.device());
    const Operand inputs[] = {x};
    elementwise(type == DType::f32 ? finite_formula<float> : finite_formula<double>, type, DType::boolean, inputs,
                finite);
    const bool* flags = finite.data<bool>();
    for (std::int64_t i = 0; i < finite.numel(); ++i)
        if (!flags[i]) return false;
    return true;
}

namespace {

// Naming every function once makes the compiler emit it here, for all who only see the declarations.
template <class... Ops>
auto emit_unary(pointwise::List<Ops...>) {
    return std::tuple{&unary<Ops>..., &chain<Ops, 1>..., &chain<Ops, 2>...};
}
template <class... Ops>
auto emit_binary(pointwise::List<Ops...>) {
    return std::tuple{&binary<Ops>...};
}
template <class... Ops>
auto emit_compare(pointwise::List<Ops...>) {
    return std::tuple{&compare<Ops>...};
}
[[maybe_unused]] const auto emitted = std::tuple{emit_unary(pointwise::UnaryOps()), emit_binary(pointwise::BinaryOps()),
                                                 emit_compare(pointwise::CompareOps())};

}  // namespace
}  // namespace gradus::kernels::cpu
