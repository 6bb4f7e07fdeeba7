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

namespace cpu {
std::int64_t find_bad_target(const ClassTargets& targets, std::int64_t classes);
double target_divisor(const ClassTargets& targets);
void target_rows(const ClassTargets& targets, const Tensor& q);
void cross_entropy(const Tensor& x, const ClassTargets& targets, const Tensor& losses, const Tensor& normalizer);
void cross_entropy_backward(const Tensor& x, const ClassTargets& targets, const Tensor& normalizer, const Tensor& g,
                            const Tensor& gx);
void nll(const Tensor& x, const ClassTargets& targets, const Tensor& losses);
void nll_backward(const ClassTargets& targets, const Tensor& g, const Tensor& gx);
}  // namespace cpu
namespace cuda {
decltype(cpu::find_bad_target) find_bad_target;
decltype(cpu::target_divisor) target_divisor;
decltype(cpu::target_rows) target_rows;
decltype(cpu::cross_entropy) cross_entropy;
decltype(cpu::cross_entropy_backward) cross_entropy_backward;
decltype(cpu::nll) nll;
decltype(cpu::nll_backward) nll_backward;
}  // namespace cuda

/// The first row whose target is neither in [0, classes) nor ignored; -1 where there is none.
inline std::int64_t find_bad_target(const ClassTargets& targets, std::int64_t classes) {
    return GRADUS_DISPATCH("cross_entropy", targets.ids.device(), find_bad_target, targets, classes);
}
/// Σ of the kept rows' class weights: what a mean divides by.
inline double target_divisor(const ClassTargets& targets) {
    return GRADUS_DISPATCH("cross_entropy", targets.ids.device(), target_divisor, targets);
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
