// Losses between tensors of one shape: made of ops, so that they can be differentiated as often as wanted.
#include "gradus/autograd/rules.h"

namespace gradus {
namespace {

/// x and target in the dtype of x; a target that only fits by broadcasting is refused, for that is nearly always a
/// mistake.
Tensor checked_target(const char* op, const Tensor& x, const Tensor& target) {
    check_devices(op, {{"x", x}, {"target", target}});
    check_floating(op, "x", x);
    check(x.shape() == target.shape(), op, ": the shapes differ: ", x.shape(), " and ", target.shape(),
          ", losses do not broadcast: reshape or expand one of them");
    return target.dtype() == x.dtype() ? target : cast(target, x.dtype());
}

Tensor reduce(const Tensor& losses, Reduction reduction) {
    if (reduction == Reduction::none) return losses;
    return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return reduce(square(sub(x, checked_target("mse_loss", x, target))), reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return reduce(abs(sub(x, checked_target("l1_loss", x, target))), reduction);
}

/// -(t log x + (1 - t) log(1 - x)), each log at least -100. As in PyTorch the slope is (x - t) / max(x (1 - x), 1e-12).
Tensor bce_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    const Tensor t = checked_target("bce_loss", x, target);
    if (x.numel() > 0) {
        const NoGrad scope;
        check(!(min(x).item() < 0) && !(max(x).item() > 1),  // NaN passes, and propagates
              "bce_loss: x must hold probabilities in [0, 1]: for logits use bce_with_logits_loss");
    }
    Tensor losses;
    {
        const NoGrad scope;
        const Tensor seen = maximum(log(x), -100), unseen = maximum(log1p(neg(x)), -100);
        losses = neg(add(mul(t, seen), mul(sub(1, t), unseen)));
    }
    losses = record(
        "bce_loss", losses,
        wrt(x, [x = saved(x), t = saved(t)](
                   const Tensor& g) { return div(mul(g, sub(x(), t())), maximum(mul(x(), sub(1, x())), 1e-12)); }),
        wrt(t, [x = saved(x)](const Tensor& g) {
            return mul(g, sub(maximum(log1p(neg(x())), -100), maximum(log(x()), -100)));
        }));
    return reduce(losses, reduction);
}

/// max(x, 0) - x t + log(1 + e^-|x|).
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    const Tensor t = checked_target("bce_with_logits_loss", x, target);
    return reduce(sub(softplus(x), mul(x, t)), reduction);
}

Tensor gaussian_kl(const Tensor& mean, const Tensor& log_variance, Reduction reduction) {
    const Tensor lv = checked_target("gaussian_kl", mean, log_variance);
    const Tensor spread = sub(exp(lv), add(lv, 1.0));  // e^lv - lv - 1
    return reduce(mul(add(spread, square(mean)), 0.5), reduction);
}

}  // namespace gradus
