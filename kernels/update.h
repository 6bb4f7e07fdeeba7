// Optimizer updates of all parameters at once, and sums over gradients; the contract, whatever the device.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "gradus/core/annotations.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// min(1, limit / (norm + 1e-6)); NaN for a NaN norm.
GRADUS_FN inline double clip_factor(double norm, double limit) {
    const double factor = limit / (norm + 1e-6);
    return factor > 1 ? 1 : factor;
}

/// What every gradient is multiplied with in an update: `scale` and, where `squares` is defined, also
/// clip_factor(scale √squares, limit). The norm stays where it was computed: nobody waits for it.
struct GradientScale {
    double scale = 1;
    Tensor squares = {};  ///< 0-d f64, Σ g² over all gradients, on their device
    double limit = 0;

    template <class F>
    void each_tensor(F&& f) const {
        f(squares);
    }
};

/// One step of SGD with momentum for one parameter:
///   g = gradient · scale + weight_decay · p
///   b = g in the first step, then momentum · b + (1 - dampening) · g
///   p -= lr · (nesterov ? g + momentum · b : b), and p -= lr · g without momentum
struct SgdStep {
    double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false;
    bool first = false;  ///< the buffer holds nothing yet and is only written
};
struct SgdUpdate {
    Tensor parameter, gradient;
    Tensor buffer;  ///< undefined where momentum is 0
    SgdStep step;

    template <class F>
    void each_tensor(F&& f) const {
        f(parameter), f(gradient), f(buffer);
    }
};

/// One step of Adam for one parameter (Kingma, Ba, ICLR 2015), or of AdamW (Loshchilov, Hutter, ICLR 2019):
///   g = gradient · scale                     (Adam: + weight_decay · p;  AdamW: p *= 1 - lr · weight_decay first)
///   m = β₁ m + (1 - β₁) g,   v = β₂ v + (1 - β₂) g²
///   p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)
struct AdamStep {
    double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool decoupled = false;  ///< AdamW's decay
    std::int64_t t = 1;      ///< counts from 1
};
struct AdamUpdate {
    Tensor parameter, gradient, mean, square;
    AdamStep step;

    template <class F>
    void each_tensor(F&& f) const {
        f(parameter), f(gradient), f(mean), f(square);
    }
};

/// The dtype an optimizer keeps its moments in: f64 for f64, else f32.
DType state_dtype(DType parameter);

namespace cpu {
/// One pass over all parameters; on a card one launch a dtype. All tensors lie on one device; those of an update are
/// contiguous and of one shape, parameter and gradient of one floating dtype, the state of state_dtype. 16-bit
/// parameters are updated through f32. Bumps the versions.
void sgd(std::span<const SgdUpdate> updates, const GradientScale& scale);
void adam(std::span<const AdamUpdate> updates, const GradientScale& scale);

/// Σ x² of each tensor, then Σ over all of them: (count + 1) f64 on the tensors' device, without waiting for it. The
/// tensors are contiguous, floating and on one device. The order of the sums follows from the sizes alone.
Tensor sums_of_squares(std::span<const Tensor> xs);
/// x *= factor and x = min(max(x, low), high), in place, over a contiguous floating tensor; NaN stays. Bumps the
/// version.
void scale_in_place(const Tensor& x, double factor);
void clamp_in_place(const Tensor& x, double low, double high);
}  // namespace cpu
namespace cuda {
decltype(cpu::sgd) sgd;
decltype(cpu::adam) adam;
decltype(cpu::sums_of_squares) sums_of_squares;
decltype(cpu::scale_in_place) scale_in_place;
decltype(cpu::clamp_in_place) clamp_in_place;
}  // namespace cuda

inline void sgd(std::span<const SgdUpdate> updates, const GradientScale& scale) {
    if (!updates.empty()) GRADUS_DISPATCH("sgd", updates.front().parameter.device(), sgd, updates, scale);
}
inline void adam(std::span<const AdamUpdate> updates, const GradientScale& scale) {
    if (!updates.empty()) GRADUS_DISPATCH("adam", updates.front().parameter.device(), adam, updates, scale);
}
inline Tensor sums_of_squares(std::span<const Tensor> xs) {
    check(!xs.empty(), "sums_of_squares: there are no tensors");
    return GRADUS_DISPATCH("sums_of_squares", xs.front().device(), sums_of_squares, xs);
}
inline void scale_in_place(const Tensor& x, double factor) {
    GRADUS_DISPATCH("scale_in_place", x.device(), scale_in_place, x, factor);
}
inline void clamp_in_place(const Tensor& x, double low, double high) {
    GRADUS_DISPATCH("clamp_in_place", x.device(), clamp_in_place, x, low, high);
}

}  // namespace gradus::kernels
