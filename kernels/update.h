// One-pass optimizer updates and gradient sums over contiguous arrays; the contract, whatever the device.
#pragma once

#include <cstdint>

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// One step of SGD with momentum for one parameter, in one pass:
///   g = gradient_scale · gradient + weight_decay · p
///   b = g in the first step, then momentum · b + (1 - dampening) · g
///   p -= lr · (nesterov ? g + momentum · b : b), and p -= lr · g without momentum
struct SgdStep {
    double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false;
    bool first = false;  ///< the buffer holds nothing yet and is only written
    double gradient_scale = 1;
};

/// One step of Adam for one parameter (Kingma, Ba, ICLR 2015), or of AdamW (Loshchilov, Hutter, ICLR 2019), in one
/// pass:
///   g = gradient_scale · gradient            (Adam: + weight_decay · p;  AdamW: p *= 1 - lr · weight_decay first)
///   m = β₁ m + (1 - β₁) g,   v = β₂ v + (1 - β₂) g²
///   p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)
struct AdamStep {
    double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool decoupled = false;  ///< AdamW's decay
    std::int64_t t = 1;      ///< counts from 1
    double gradient_scale = 1;
};

/// The dtype an optimizer keeps its moments in: f64 for f64, else f32.
DType state_dtype(DType parameter);

namespace cpu {
/// All tensors contiguous, of one shape, on one device; parameter and gradient of one floating dtype, the state of
/// state_dtype. 16-bit parameters are updated through f32. The buffer is undefined where momentum is 0. Bumps the
/// versions.
void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& buffer, const SgdStep& step);
void adam(const Tensor& parameter, const Tensor& gradient, const Tensor& mean, const Tensor& square,
          const AdamStep& step);

/// Σ x² over a contiguous floating tensor, in f64 and in an order that does not depend on the number of threads.
double sum_of_squares(const Tensor& x);
/// x *= factor and x = min(max(x, low), high), in place, over a contiguous floating tensor; NaN stays. Bumps the
/// version.
void scale_in_place(const Tensor& x, double factor);
void clamp_in_place(const Tensor& x, double low, double high);
}  // namespace cpu
namespace cuda {
decltype(cpu::sgd) sgd;
decltype(cpu::adam) adam;
decltype(cpu::sum_of_squares) sum_of_squares;
decltype(cpu::scale_in_place) scale_in_place;
decltype(cpu::clamp_in_place) clamp_in_place;
}  // namespace cuda

inline void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& buffer, const SgdStep& step) {
    GRADUS_DISPATCH("sgd", parameter.device(), sgd, parameter, gradient, buffer, step);
}
inline void adam(const Tensor& parameter, const Tensor& gradient, const Tensor& mean, const Tensor& square,
                 const AdamStep& step) {
    GRADUS_DISPATCH("adam", parameter.device(), adam, parameter, gradient, mean, square, step);
}
inline double sum_of_squares(const Tensor& x) {
    return GRADUS_DISPATCH("sum_of_squares", x.device(), sum_of_squares, x);
}
inline void scale_in_place(const Tensor& x, double factor) {
    GRADUS_DISPATCH("scale_in_place", x.device(), scale_in_place, x, factor);
}
inline void clamp_in_place(const Tensor& x, double low, double high) {
    GRADUS_DISPATCH("clamp_in_place", x.device(), clamp_in_place, x, low, high);
}

}  // namespace gradus::kernels
