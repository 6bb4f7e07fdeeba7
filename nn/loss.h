// Losses as modules: class weights are buffers, so they follow to(device).
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/nn/module.h"

namespace gradus {

/// cross_entropy with its options kept: logits (N, C, …), targets (N, …) -> 0-d, or (N, …) for Reduction::none.
class CrossEntropyLoss final : public Layer<CrossEntropyLoss> {
  public:
    explicit CrossEntropyLoss(const CrossEntropyOptions& options = {});
    Tensor forward(const Tensor& logits, const Tensor& targets) const {
        return cross_entropy(logits, targets, options());
    }
    /// The sum and the divisor that a mean would take.
    LossSum sum(const Tensor& logits, const Tensor& targets) const;
    void visit(Visitor& v) override { v("class_weights", class_weights); }
    CrossEntropyOptions options() const { return {ignore_index_, label_smoothing_, class_weights, reduction_}; }
    Buffer class_weights;  // (C) or undefined

  private:
    std::int64_t ignore_index_;
    double label_smoothing_;
    Reduction reduction_;
};

/// nll_loss of log-probabilities with its options kept.
class NLLLoss final : public Layer<NLLLoss> {
  public:
    explicit NLLLoss(const CrossEntropyOptions& options = {});
    Tensor forward(const Tensor& log_probabilities, const Tensor& targets) const;
    void visit(Visitor& v) override { v("class_weights", class_weights); }
    Buffer class_weights;  // (C) or undefined

  private:
    std::int64_t ignore_index_;
    Reduction reduction_;
};

/// A loss of two tensors of one shape: f(x, target, reduction).
template <Tensor (*function)(const Tensor&, const Tensor&, Reduction), Reduction standard>
class PairLoss final : public Layer<PairLoss<function, standard>> {
  public:
    explicit PairLoss(Reduction reduction = standard) : reduction_(reduction) {}
    Tensor forward(const Tensor& x, const Tensor& target) const { return function(x, target, reduction_); }
    void visit(Visitor&) override {}

  private:
    Reduction reduction_;
};
using MSELoss = PairLoss<mse_loss, Reduction::mean>;                        ///< (x - target)²
using L1Loss = PairLoss<l1_loss, Reduction::mean>;                          ///< |x - target|
using BCELoss = PairLoss<bce_loss, Reduction::mean>;                        ///< of probabilities
using BCEWithLogitsLoss = PairLoss<bce_with_logits_loss, Reduction::mean>;  ///< of logits
using GaussianKL = PairLoss<gaussian_kl, Reduction::sum>;  ///< forward(mean, log_variance), against N(0, 1)

}  // namespace gradus
