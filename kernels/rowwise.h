// Kernels over rows: softmax and its kin, layer norm and RMS norm.
//
// Every tensor is row-major and seen as (rows, n); x, y, g, gx share dtype (f32 or f64) and size. Statistics of a row
// are summed in a fixed order in packs, pack sums in double; a row belongs to one thread, so results do not depend on
// the thread count.
#pragma once

#include "gradus/core/philox.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

// ---- for both devices ----
template <class T>
inline const T* data_or_null(const Tensor& x) {
    return x.defined() ? x.data<T>() : nullptr;
}

/// Elements of a row of x; without rows those of weight or bias, whose gradients are 0 then.
inline std::int64_t norm_width(const Tensor& x, std::int64_t rows, const Tensor& gweight, const Tensor& gbias) {
    if (rows > 0) return x.numel() / rows;
    return gweight.defined() ? gweight.numel() : gbias.defined() ? gbias.numel() : 0;
}

namespace cpu {
void softmax(const Tensor& x, const Tensor& y);
void log_softmax(const Tensor& x, const Tensor& y);
void masked_softmax(const Tensor& x, const Tensor& visible, const Tensor& y);
void softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx, bool masked);
void log_softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx);
void row_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centred, const Tensor& y,
              const Tensor& mean, const Tensor& rstd);
void row_norm_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                       const Tensor& gx, const Tensor& gweight, const Tensor& gbias);
void residual_norm(const Tensor& x, const Tensor& residual, double p, const Draw& draw, const Tensor& weight,
                   const Tensor& bias, double eps, const Tensor& s, const Tensor& y, const Tensor& mean,
                   const Tensor& rstd);
void residual_norm_backward(const Tensor& g, const Tensor& s, const Tensor& weight, const Tensor& mean,
                            const Tensor& rstd, double p, const Draw& draw, const Tensor& gx, const Tensor& gresidual,
                            const Tensor& gweight, const Tensor& gbias);
}  // namespace cpu
namespace cuda {
decltype(cpu::softmax) softmax;
decltype(cpu::log_softmax) log_softmax;
decltype(cpu::masked_softmax) masked_softmax;
decltype(cpu::softmax_backward) softmax_backward;
decltype(cpu::log_softmax_backward) log_softmax_backward;
decltype(cpu::row_norm) row_norm;
decltype(cpu::row_norm_backward) row_norm_backward;
decltype(cpu::residual_norm) residual_norm;
decltype(cpu::residual_norm_backward) residual_norm_backward;
}  // namespace cuda

/// y = softmax of x over the last axis; NaN where a row is all -inf.
inline void softmax(const Tensor& x, const Tensor& y) { GRADUS_DISPATCH("softmax", x.device(), softmax, x, y); }
/// y = x - log Σ eˣ over the last axis.
inline void log_softmax(const Tensor& x, const Tensor& y) {
    GRADUS_DISPATCH("log_softmax", x.device(), log_softmax, x, y);
}
/// softmax among the visible elements; `visible` is bool, of x's shape, with any strides. A row that sees nothing is
/// zero.
inline void masked_softmax(const Tensor& x, const Tensor& visible, const Tensor& y) {
    GRADUS_DISPATCH("masked_softmax", x.device(), masked_softmax, x, visible, y);
}
/// gx = y (g - Σ g y). Masked: where y is 0, g is not looked at and gx is 0.
inline void softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx, bool masked) {
    GRADUS_DISPATCH("softmax", g.device(), softmax_backward, g, y, gx, masked);
}
/// gx = g - eʸ Σ g.
inline void log_softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx) {
    GRADUS_DISPATCH("log_softmax", g.device(), log_softmax_backward, g, y, gx);
}
/// y = (x - mean) rstd · weight + bias with rstd = 1/√(mean of (x - mean)² + eps); not centred, the mean is taken as 0.
/// weight and bias (n) may be undefined; mean and rstd are (rows), mean undefined where not centred.
inline void row_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centred,
                     const Tensor& y, const Tensor& mean, const Tensor& rstd) {
    GRADUS_DISPATCH("layer_norm", x.device(), row_norm, x, weight, bias, eps, centred, y, mean, rstd);
}
/// With x̂ = (x - mean) rstd and h = g · weight: gx = rstd (h - mean h - x̂ mean(h x̂)), gweight = Σ g x̂, gbias = Σ g over
/// the rows. An undefined mean means not centred; undefined gradients are left out.
inline void row_norm_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean,
                              const Tensor& rstd, const Tensor& gx, const Tensor& gweight, const Tensor& gbias) {
    GRADUS_DISPATCH("layer_norm", g.device(), row_norm_backward, g, x, weight, mean, rstd, gx, gweight, gbias);
}
/// s = residual + dropout of x with the decisions of `draw` (kernels/dropout.h; p = 0 keeps all), and y, mean, rstd as
/// row_norm makes them, centred, of s. x, residual and s are of y's shape.
inline void residual_norm(const Tensor& x, const Tensor& residual, double p, const Draw& draw, const Tensor& weight,
                          const Tensor& bias, double eps, const Tensor& s, const Tensor& y, const Tensor& mean,
                          const Tensor& rstd) {
    GRADUS_DISPATCH("dropout_add_layer_norm", x.device(), residual_norm, x, residual, p, draw, weight, bias, eps, s, y,
                    mean, rstd);
}
/// gresidual, gweight and gbias are what row_norm_backward makes of s; gx is dropout of gresidual with the same
/// decisions. Undefined gradients are left out.
inline void residual_norm_backward(const Tensor& g, const Tensor& s, const Tensor& weight, const Tensor& mean,
                                   const Tensor& rstd, double p, const Draw& draw, const Tensor& gx,
                                   const Tensor& gresidual, const Tensor& gweight, const Tensor& gbias) {
    GRADUS_DISPATCH("dropout_add_layer_norm", g.device(), residual_norm_backward, g, s, weight, mean, rstd, p, draw, gx,
                    gresidual, gweight, gbias);
}

}  // namespace gradus::kernels
