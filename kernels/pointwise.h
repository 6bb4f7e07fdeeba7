// Pointwise kernels: one formula over every element, operands of any layout and dtype broadcast to the result.
#pragma once

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"
#include "gradus/kernels/pointwise_ops.h"

namespace gradus::kernels {

/// A tensor or a number on the host.
struct Operand {
    const Tensor* tensor = nullptr;
    double number = 0;
    Operand(const Tensor& x) : tensor(&x) {}
    Operand(double x) : number(x) {}

    template <class F>
    void each_tensor(F&& f) const {
        if (tensor) f(*tensor);
    }
};

namespace cpu {
template <class Op>
void unary(const Tensor& x, const Tensor& y);
template <class Op, int order>
void chain(const Tensor& g, const Tensor& x, const Tensor& gx);
template <class Op>
void binary(Operand a, Operand b, const Tensor& y);
template <class Op>
void compare(Operand a, Operand b, DType as, const Tensor& y);
void where(const Tensor& condition, Operand a, Operand b, const Tensor& y);
bool all_finite(const Tensor& x);
}  // namespace cpu
namespace cuda {
template <class Op>
void unary(const Tensor& x, const Tensor& y);
template <class Op, int order>
void chain(const Tensor& g, const Tensor& x, const Tensor& gx);
template <class Op>
void binary(Operand a, Operand b, const Tensor& y);
template <class Op>
void compare(Operand a, Operand b, DType as, const Tensor& y);
decltype(cpu::where) where;
decltype(cpu::all_finite) all_finite;
}  // namespace cuda

/// y = Op::f(x), computed in y's dtype (16-bit floats in f32, integers in i64).
template <class Op>
void unary(const Tensor& x, const Tensor& y) {
    GRADUS_DISPATCH("unary", y.device(), unary<Op>, x, y);
}
/// gx = g · f⁽ᵒʳᵈᵉʳ⁾(x).
template <class Op, int order>
void chain(const Tensor& g, const Tensor& x, const Tensor& gx) {
    GRADUS_DISPATCH("chain", gx.device(), chain<Op GRADUS_COMMA order>, g, x, gx);
}
template <class Op>
void binary(Operand a, Operand b, const Tensor& y) {
    GRADUS_DISPATCH("binary", y.device(), binary<Op>, a, b, y);
}
/// y (bool) = Op::f(a, b), compared in the dtype `as`.
template <class Op>
void compare(Operand a, Operand b, DType as, const Tensor& y) {
    GRADUS_DISPATCH("compare", y.device(), compare<Op>, a, b, as, y);
}
/// y = condition ? a : b; nothing is multiplied, so NaN and infinities on the other side stay there.
inline void where(const Tensor& condition, Operand a, Operand b, const Tensor& y) {
    GRADUS_DISPATCH("where", y.device(), where, condition, a, b, y);
}
/// sum += x, of one shape; sum is contiguous.
inline void accumulate(const Tensor& x, const Tensor& sum) { binary<pointwise::Add>(sum, x, sum); }
inline bool all_finite(const Tensor& x) { return GRADUS_DISPATCH("all_finite", x.device(), all_finite, x); }

}  // namespace gradus::kernels
