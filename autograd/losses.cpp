// Cross-entropy over classes and its rules. The other losses are in regression.cpp.
#include <cmath>
#include <limits>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/loss.h"
#include "gradus/kernels/memory.h"

namespace gradus {
namespace {

bool is_half(const Tensor& x) { return x.dtype() == DType::bf16 || x.dtype() == DType::f16; }
Tensor in_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

/// Logits as rows of classes, targets checked, and the shape that a loss per row has.
struct Rows {
    Tensor x;  ///< (N, C), row-major, f32 or f64
    kernels::ClassTargets targets;
    Shape outer;
};

/// Targets kept for backward: reading them throws when the caller changed the class numbers or weights meanwhile.
class SavedTargets {
  public:
    explicit SavedTargets(const kernels::ClassTargets& targets)
        : targets_(targets), ids_(targets.ids), weights_(targets.weights) {}
    const kernels::ClassTargets& operator()() const {
        ids_(), weights_();
        return targets_;
    }

  private:
    kernels::ClassTargets targets_;
    Saved ids_, weights_;
};

/// (N, C, …) -> (N …, C): the class axis moves last.
Tensor class_rows(const Tensor& x) {
    if (x.rank() == 2) return contiguous(x);
    Axes order{0};
    for (int i = 2; i < x.rank(); ++i) order.push_back(i);
    order.push_back(1);
    return contiguous(reshape(permute(x, order), {x.numel() / x.size(1), x.size(1)}));
}

void check_logits(const char* op, const Tensor& x, const Tensor& targets, const CrossEntropyOptions& options) {
    check_devices(op, {{"logits", x}, {"targets", targets}, {"class_weights", options.class_weights}});
    check_floating(op, "logits", x);
    check(x.rank() >= 2 && x.size(1) > 0, op, ": logits must be (N, C) or (N, C, …) with at least one class: got ",
          x.shape());
    check(options.label_smoothing >= 0 && options.label_smoothing <= 1, op,
          ": label_smoothing must lie in [0, 1]: got ", options.label_smoothing);
    const Tensor& w = options.class_weights;
    if (!w.defined()) return;
    check_floating(op, "class_weights", w);
    check(w.shape() == Shape{x.size(1)}, op, ": class_weights must have one weight a class, ", Shape{x.size(1)},
          ": got ", w.shape());
    check(!recording(w), op, ": class_weights have no gradient: detach them");
}

Rows class_targets(const char* op, const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
    check_logits(op, logits, targets, options);
    Rows rows;
    rows.outer = logits.shape();
    rows.outer.erase(1);
    check(targets.dtype() == DType::i64 || targets.dtype() == DType::i32, op,
          ": targets must be i64 or i32 class numbers: got ", targets.dtype(), " of shape ", targets.shape());
    check(targets.shape() == rows.outer, op, ": targets must be ", rows.outer, " for logits of ", logits.shape(),
          ": got ", targets.shape());
    const DType dtype = is_half(logits) ? DType::f32 : logits.dtype();
    rows.x = class_rows(in_dtype(logits, dtype));
    const NoGrad scope;
    rows.targets.ids = reshape(contiguous(in_dtype(targets, DType::i64)), {targets.numel()});
    if (options.class_weights.defined())
        rows.targets.weights = contiguous(in_dtype(options.class_weights, dtype)).without_past();
    rows.targets.smoothing = options.label_smoothing;
    rows.targets.ignore = options.ignore_index;
    rows.targets = kernels::checked_targets(op, rows.targets, targets.shape(), logits.size(1));
    return rows;
}

/// How the losses of rows become one: without `mean` they are added up, or stay what they are.
struct Reducer {
    Reduction reduction;
    kernels::MeanDivisor mean;  ///< for Reduction::mean alone

    Reducer(Reduction reduction, const kernels::ClassTargets& targets) : reduction(reduction) {
        if (reduction == Reduction::mean) mean = kernels::mean_divisor(targets);
    }
    Tensor operator()(const Tensor& losses, const Shape& outer) const {
        if (reduction == Reduction::none) return losses.with_layout(Layout(outer));
        const NoGrad scope;
        const Tensor total = sum(losses);
        return reduction == Reduction::sum ? total : div(total, cast(mean.sum, total.dtype()));
    }
    /// dL/d(losses of rows) as the kernels read it: one element, or one a row.
    Tensor row_gradient(const Tensor& g) const {
        const Tensor flat = g.rank() == 0 ? g : reshape(contiguous(g), {g.numel()});
        return reduction == Reduction::mean ? mul(flat, cast(mean.slope, flat.dtype())) : flat;
    }
};
Tensor as_column(const Tensor& g) { return g.rank() == 0 ? g : unsqueeze(g, 1); }

Tensor target_matrix(const kernels::ClassTargets& targets, const Tensor& x) {
    const Tensor q = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels::target_rows(targets, q);
    return q;
}

Tensor cross_entropy_rows(const char* op, const Rows& rows, const Reducer& reducer) {
    const Tensor& x = rows.x;
    const Tensor losses = Tensor::empty({x.size(0)}, x.dtype(), x.device());
    const Tensor normalizer = Tensor::empty({x.size(0), 2}, x.dtype(), x.device());
    kernels::cross_entropy(x, rows.targets, losses, normalizer);
    return record(
        op, reducer(losses, rows.outer),
        wrt(x, [x = saved(x), targets = SavedTargets(rows.targets), normalizer, reducer](const Tensor& gradient) {
            const Tensor g = reducer.row_gradient(gradient);
            if (grad_enabled()) {
                const Tensor q = target_matrix(targets(), x()), weight = sum(q, {1}, true);
                // A row that counts nothing may hold anything, also NaN.
                const Tensor p = softmax(where(equal(weight, 0.0), 0.0, x()), -1);
                return mul(as_column(g), sub(mul(p, weight), q));
            }
            // Logits are large, and mostly nobody needs them any more.
            const Tensor gx = x.last_owner() ? x().without_past() : Tensor::empty_like(x());
            kernels::cross_entropy_backward(x(), targets(), normalizer, g, gx);
            return gx;
        }));
}

/// Targets that are a distribution over the classes: made of ops, so that they may have gradients too.
Tensor distribution_loss(const char* op, const Tensor& logits, const Tensor& targets,
                         const CrossEntropyOptions& options, Reduction reduction) {
    check_logits(op, logits, targets, options);
    check(targets.shape() == logits.shape(), op, ": floating targets are probabilities of the logits' shape: got ",
          targets.dtype(), " ", targets.shape(), " for logits of ", logits.shape(),
          "; class numbers must be i64 or i32");
    check(options.ignore_index < 0, op, ": ignore_index = ", options.ignore_index,
          " has no meaning with targets that are probabilities: leave it out");
    const DType dtype = is_half(logits) ? DType::f32 : logits.dtype();
    const Tensor x = class_rows(in_dtype(logits, dtype));
    const double smoothing = options.label_smoothing;
    Tensor q = class_rows(in_dtype(targets, dtype));
    if (smoothing > 0) q = add(mul(q, 1 - smoothing), smoothing / double(x.size(1)));
    if (options.class_weights.defined()) q = mul(q, in_dtype(options.class_weights, dtype));
    // 0 · -inf counts as 0.
    const Tensor logp = log_softmax(x, -1);
    const Tensor nothing = logical_and(equal(q, 0.0), equal(logp, -std::numeric_limits<double>::infinity()));
    const Tensor losses = neg(sum(where(nothing, 0.0, mul(q, logp)), {1}));
    Shape outer = logits.shape();
    outer.erase(1);
    if (reduction == Reduction::none) return reshape(losses, outer);
    return reduction == Reduction::sum ? sum(losses) : div(sum(losses), double(losses.numel()));
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
    constexpr const char* op = "cross_entropy";
    if (is_floating(targets.dtype()))
        return in_dtype(distribution_loss(op, logits, targets, options, options.reduction), logits.dtype());
    const Rows rows = class_targets(op, logits, targets, options);
    return in_dtype(cross_entropy_rows(op, rows, Reducer(options.reduction, rows.targets)), logits.dtype());
}

LossSum cross_entropy_sum(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
    constexpr const char* op = "cross_entropy_sum";
    if (is_floating(targets.dtype()))
        return {distribution_loss(op, logits, targets, options, Reduction::sum),
                full({}, double(logits.numel() / logits.size(1)), DType::f32, logits.device())};
    const Rows rows = class_targets(op, logits, targets, options);
    return {cross_entropy_rows(op, rows, Reducer(Reduction::sum, rows.targets)),
            cast(kernels::mean_divisor(rows.targets).sum, DType::f32)};
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options) {
    constexpr const char* op = "nll_loss";
    check(options.label_smoothing == 0, op, ": has no label smoothing, cross_entropy has: got ",
          options.label_smoothing);
    const Rows rows = class_targets(op, log_probabilities, targets, options);
    const Tensor& x = rows.x;
    const Reducer reducer(options.reduction, rows.targets);
    const Tensor losses = Tensor::empty({x.size(0)}, x.dtype(), x.device());
    kernels::nll(x, rows.targets, losses);
    const Tensor loss =
        record(op, reducer(losses, rows.outer),
               wrt(x, [shape = x.shape(), targets = SavedTargets(rows.targets), reducer](const Tensor& gradient) {
                   const Tensor g = reducer.row_gradient(gradient);
                   const Tensor gx = Tensor::empty(shape, gradient.dtype(), gradient.device());
                   if (grad_enabled()) {
                       kernels::target_rows(targets(), gx);
                       return neg(mul(as_column(g), gx));
                   }
                   kernels::nll_backward(targets(), g, gx);
                   return gx;
               }));
    return in_dtype(loss, log_probabilities.dtype());
}

}  // namespace gradus
