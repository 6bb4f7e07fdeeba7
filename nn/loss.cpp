#include "gradus/nn/loss.h"

namespace gradus {
namespace {

Buffer weights_of(const CrossEntropyOptions& options) {
    return options.class_weights.defined() ? Buffer(options.class_weights) : Buffer();
}

}  // namespace

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyOptions& options)
    : class_weights(weights_of(options)),
      ignore_index_(options.ignore_index),
      label_smoothing_(options.label_smoothing),
      reduction_(options.reduction) {
    check(label_smoothing_ >= 0 && label_smoothing_ <= 1, "CrossEntropyLoss: label_smoothing must be in [0, 1]: got ",
          label_smoothing_);
}

LossSum CrossEntropyLoss::sum(const Tensor& logits, const Tensor& targets) const {
    const ModuleFrame frame(*this);
    return cross_entropy_sum(logits, targets, options());
}

NLLLoss::NLLLoss(const CrossEntropyOptions& options)
    : class_weights(weights_of(options)), ignore_index_(options.ignore_index), reduction_(options.reduction) {
    check(options.label_smoothing == 0, "NLLLoss: has no label smoothing: use CrossEntropyLoss on logits");
}

Tensor NLLLoss::forward(const Tensor& log_probabilities, const Tensor& targets) const {
    return nll_loss(log_probabilities, targets, {ignore_index_, 0, class_weights, reduction_});
}

}  // namespace gradus
