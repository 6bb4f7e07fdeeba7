// Cross-entropy and negative log-likelihood over rows of classes.
#pragma once

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// What each of N rows should be. It stands for a row of weights q: (1 - smoothing) w at the target's class plus
/// smoothing / C · w at every class c, with w the class weights (1 where undefined); q is zero where the target is
/// `ignore`.
struct ClassTargets {
    Tensor ids;      ///< i64 (N), row-major
    Tensor weights;  ///< (C) of the logits' dtype, row-major; or undefined
    double smoothing = 0;
    std::int64_t ignore = -100;

    template <class F>
    void each_tensor(F&& f) const {
        f(ids), f(weights);
    }
};

/// What a mean over the kept rows divides by, on the targets' device, both 0-d f64.
struct MeanDivisor {
    Tensor sum;  ///< Σ of the kept rows' class weights
    Tensor
        slope;  ///< 1 / sum, or 1 where the sum is 0: the loss is NaN then, but its gradient zero however it is scaled
};

namespace cpu {
ClassTargets checked_targets(const char* op, const ClassTargets& targets, const Shape& shape, std::int64_t classes);
MeanDivisor mean_divisor(const ClassTargets& targets);
void target_rows(const ClassTargets& targets, const Tensor& q);
void cross_entropy(const Tensor& x, const ClassTargets& targets, const Tensor& losses, const Tensor& normalizer);
void cross_entropy_backward(const Tensor& x, const ClassTargets& targets, const Tensor& normalizer, const Tensor& g,
                            const Tensor& gx);
void nll(const Tensor& x, const ClassTargets& targets, const Tensor& losses);
void nll_backward(const ClassTargets& targets, const Tensor& g, const Tensor& gx);
}  // namespace cpu
namespace cuda {
decltype(cpu::checked_targets) checked_targets;
decltype(cpu::mean_divisor) mean_divisor;
decltype(cpu::target_rows) target_rows;
decltype(cpu::cross_entropy) cross_entropy;
decltype(cpu::cross_entropy_backward) cross_entropy_backward;
decltype(cpu::nll) nll;
decltype(cpu::nll_backward) nll_backward;
}  // namespace cuda

/// The targets where each is in [0, classes) or ignored. Else an error names the first that is not, and its position in
/// the shape that the caller's targets have: at once on the CPU, on a card with the next wait (core/late_fault.h),
/// until when it is ignored.
inline ClassTargets checked_targets(const char* op, const ClassTargets& targets, const Shape& shape,
                                    std::int64_t classes) {
    return GRADUS_DISPATCH(op, targets.ids.device(), checked_targets, op, targets, shape, classes);
}
inline MeanDivisor mean_divisor(const ClassTargets& targets) {
    return GRADUS_DISPATCH("cross_entropy", targets.ids.device(), mean_divisor, targets);
}
/// q as a matrix (N, C).
inline void target_rows(const ClassTargets& targets, const Tensor& q) {
    GRADUS_DISPATCH("cross_entropy", q.device(), target_rows, targets, q);
}
/// losses (N) = Σ q (log Σ eˣ - x) for logits x (N, C); normalizer (N, 2) takes a row's maximum m and log Σ e^(x - m).
inline void cross_entropy(const Tensor& x, const ClassTargets& targets, const Tensor& losses,
                          const Tensor& normalizer) {
    GRADUS_DISPATCH("cross_entropy", x.device(), cross_entropy, x, targets, losses, normalizer);
}
/// gx = g (Σq softmax(x) - q); g has N elements, or one for all rows. gx may be x.
inline void cross_entropy_backward(const Tensor& x, const ClassTargets& targets, const Tensor& normalizer,
                                   const Tensor& g, const Tensor& gx) {
    GRADUS_DISPATCH("cross_entropy", x.device(), cross_entropy_backward, x, targets, normalizer, g, gx);
}
/// losses (N) = -q x for log-probabilities x (N, C); the targets have no smoothing.
inline void nll(const Tensor& x, const ClassTargets& targets, const Tensor& losses) {
    GRADUS_DISPATCH("nll_loss", x.device(), nll, x, targets, losses);
}
/// gx = -g q; g has N elements, or one for all rows.
inline void nll_backward(const ClassTargets& targets, const Tensor& g, const Tensor& gx) {
    GRADUS_DISPATCH("nll_loss", gx.device(), nll_backward, targets, g, gx);
}

}  // namespace gradus::kernels
