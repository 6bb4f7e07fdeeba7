// Losses between tensors of one shape: made of ops, so that they can be differentiated as often as wanted.
#include "gradus/autograd/rules.h"

namespace gradus {
namespace {

/// A target that only fits by broadcasting is refused, for that is nearly always a mistake.
void check_target(const char* op, const Tensor& x, const Tensor& target) {
    check_devices(op, {{"x", x}, {"target", target}});
    check_floating(op, "x", x);
    check(x.shape() == target.shape(), op, ": the shapes differ: ", x.shape(), " and ", target.shape(),
          ", losses do not broadcast: reshape or expand one of them");
}

Tensor reduce(const Tensor& losses, Reduction reduction) {
    if (reduction == Reduction::none) return losses;
    return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

/// formula(x, target) in x's dtype (16-bit floats in f32), reduced.
template <class Formula>
Tensor loss(const char* op, const Tensor& x, const Tensor& target, Reduction reduction, Formula&& formula) {
    check_target(op, x, target);
    return in_f32(x, [&](const Tensor& x) { return reduce(formula(x, cast(target, x.dtype())), reduction); });
}

/// -(t log x + (1 - t) log(1 - x)), each log at least -100. As in PyTorch the slope is (x - t) / max(x (1 - x), 1e-12).
Tensor bce(const Tensor& x, const Tensor& t) {
    Tensor losses;
    {
        const NoGrad scope;
        if (x.numel() > 0)
            check(!(min(x).item() < 0) && !(max(x).item() > 1),  // NaN passes, and propagates
                  "bce_loss: x must hold probabilities in [0, 1]: for logits use bce_with_logits_loss");
        const Tensor seen = maximum(log(x), -100), unseen = maximum(log1p(neg(x)), -100);
        losses = neg(add(mul(t, seen), mul(sub(1, t), unseen)));
    }
    return record(
        "bce_loss", losses,
        wrt(x, [x = saved(x), t = saved(t)](
                   const Tensor& g) { return div(mul(g, sub(x(), t())), maximum(mul(x(), sub(1, x())), 1e-12)); }),
        wrt(t, [x = saved(x)](const Tensor& g) {
            return mul(g, sub(maximum(log1p(neg(x())), -100), maximum(log(x()), -100)));
        }));
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return loss("mse_loss", x, target, reduction, [](const Tensor& x, const Tensor& t) { return square(sub(x, t)); });
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return loss("l1_loss", x, target, reduction, [](const Tensor& x, const Tensor& t) { return abs(sub(x, t)); });
}

Tensor bce_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return loss("bce_loss", x, target, reduction, bce);
}

/// max(x, 0) - x t + log(1 + e^-|x|).
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    return loss("bce_with_logits_loss", x, target, reduction,
                [](const Tensor& x, const Tensor& t) { return sub(softplus(x), mul(x, t)); });
}

Tensor gaussian_kl(const Tensor& mean, const Tensor& log_variance, Reduction reduction) {
    return loss("gaussian_kl", mean, log_variance, reduction, [](const Tensor& mu, const Tensor& lv) {
        const Tensor spread = sub(exp(lv), add(lv, 1.0));  // e^lv - lv - 1
        return mul(add(spread, square(mu)), 0.5);
    });
}

}  // namespace gradus
