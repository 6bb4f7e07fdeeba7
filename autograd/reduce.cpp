// Reductions and their rules.
#include <cmath>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/pointwise.h"
#include "gradus/kernels/reduce.h"

namespace gradus {
namespace {

using kernels::Reduce;

Tensor reduced(const char* op, Reduce what, const Tensor& x, const Axes& axes, bool keep, DType dtype) {
    const Axes normal = normal_axes(op, axes, x.rank());
    Tensor y = Tensor::empty(reduced_shape(x.shape(), normal, false), dtype, x.device());
    kernels::reduce(what, x, normal, y);
    return keep ? y.with_layout(Layout(reduced_shape(x.shape(), normal, true))) : y;
}

/// Where a reduction's gradient goes back to: g seen with axes of size 1 where they were reduced.
struct Kept {
    Kept(const char* op, const Tensor& x, const Axes& axes) : shape(x.shape()), axes(normal_axes(op, axes, x.rank())) {}
    Tensor unreduced(const Tensor& g) const { return reshape(g, reduced_shape(shape, axes, true)); }
    Tensor spread(const Tensor& g) const { return expand(unreduced(g), shape); }
    std::int64_t count() const {
        std::int64_t n = 1;
        for (const std::int64_t axis : axes) n *= shape[int(axis)];
        return n;
    }
    Shape shape;
    Axes axes;
};

/// x with the reduced axes moved to the end and merged into one.
Tensor merged(const Tensor& x, const Axes& axes, Axes& order) {
    order = Axes();
    Shape shape;
    for (int i = 0, a = 0; i < x.rank(); ++i) {
        if (a < axes.rank() && axes[a] == i)
            ++a;
        else
            order.push_back(i), shape.push_back(x.shape()[i]);
    }
    std::int64_t n = 1;
    for (const std::int64_t axis : axes) order.push_back(axis), n *= x.shape()[int(axis)];
    shape.push_back(n);
    return reshape(permute(x, order), shape);
}

/// merged() undone.
Tensor unmerged(const Tensor& rows, const Shape& shape, const Axes& order) {
    Shape permuted;
    Axes inverse = order;
    for (int i = 0; i < order.rank(); ++i) permuted.push_back(shape[int(order[i])]), inverse[int(order[i])] = i;
    return permute(reshape(rows, permuted), inverse);
}

/// Π of the others for each element of x, by definition: n² factors, but it can be differentiated as often as wanted.
Tensor product_of_others(const Tensor& x, const Axes& axes) {
    Axes order;
    const Tensor rows = merged(x, axes, order);
    Shape square = rows.shape();
    square.push_back(rows.size(-1));
    const Tensor self = eye(rows.size(-1), DType::boolean, x.device());
    return unmerged(prod(where(self, 1, expand(unsqueeze(rows, -2), square)), {-1}), x.shape(), order);
}

Tensor extreme(const char* op, Reduce what, const Tensor& x, const Axes& axes, bool keep) {
    const Kept kept(op, x, axes);
    check(kept.count() > 0, op, ": nothing to choose from: the reduced axes of ", x.shape(), " are empty");
    const bool largest = what == Reduce::max;
    return record(op, reduced(op, what, x, axes, keep, x.dtype()),
                  wrt(x, [kept, largest, x = saved(x)](const Tensor& g) {
                      Axes order;
                      const Tensor rows = merged(detach(x()), kept.axes, order);
                      const Tensor first = largest ? argmax(rows, -1, true) : argmin(rows, -1, true);
                      const Tensor gx = scatter_add(zeros_like(rows), -1, first, reshape(g, first.shape()));
                      return unmerged(gx, kept.shape, order);
                  }));
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keep) {
    const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64;
    return record("sum", reduced("sum", Reduce::sum, x, axes, keep, dtype),
                  wrt(x, [kept = Kept("sum", x, axes)](const Tensor& g) { return kept.spread(g); }));
}

Tensor mean(const Tensor& x, const Axes& axes, bool keep) {
    check_floating("mean", "x", x);
    const Kept kept("mean", x, axes);
    const double n = double(kept.count());
    // The 16-bit floats' sum may lie beyond their range where the mean does not.
    const Tensor total = reduced("mean", Reduce::sum, x, axes, keep, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
    const Tensor y = Tensor::empty(total.shape(), x.dtype(), x.device());
    kernels::binary<pointwise::Div>(total, n, y);
    return record("mean", y, wrt(x, [kept, n](const Tensor& g) { return kept.spread(div(g, n)); }));
}

Tensor var(const Tensor& x, const Axes& axes, bool keep, bool unbiased) {
    check_floating("var", "x", x);
    const double n = double(Kept("var", x, axes).count());
    return in_f32(x, [&](const Tensor& x) {
        const Tensor centred = sub(x, mean(x, axes, true));
        return div(sum(square(centred), axes, keep), unbiased ? std::max(n - 1, 0.0) : n);
    });
}

Tensor max(const Tensor& x, const Axes& axes, bool keep) { return extreme("max", Reduce::max, x, axes, keep); }
Tensor min(const Tensor& x, const Axes& axes, bool keep) { return extreme("min", Reduce::min, x, axes, keep); }

Tensor prod(const Tensor& x, const Axes& axes, bool keep) {
    const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64;
    return record("prod", reduced("prod", Reduce::prod, x, axes, keep, dtype),
                  wrt(x, [kept = Kept("prod", x, axes), x = saved(x)](const Tensor& g) {
                      if (grad_enabled()) return mul(kept.unreduced(g), product_of_others(x(), kept.axes));
                      // With no zero: y / x. With one zero only it has a slope, the product of the others.
                      const Tensor zero = equal(x(), 0), others = where(zero, 1, x());
                      const Tensor zeros_in_row = sum(zero, kept.axes, true), product = prod(others, kept.axes, true);
                      const Tensor whole = where(equal(zeros_in_row, 0), div(product, others), 0);
                      const Tensor lone = where(logical_and(equal(zeros_in_row, 1), zero), product, whole);
                      return mul(kept.unreduced(g), lone);
                  }));
}

namespace {

Tensor arg_extreme(const char* op, bool largest, const Tensor& x, int axis, bool keep) {
    const int normal = normal_axis(op, axis, x.rank());
    check(x.shape()[normal] > 0, op, ": nothing to choose from: axis ", axis, " of ", x.shape(), " is empty");
    const Tensor y = Tensor::empty(reduced_shape(x.shape(), {normal}, keep), DType::i64, x.device());
    kernels::arg_extreme(largest, x, normal, y);
    return y;
}

Tensor bools(const char* op, Reduce what, const Tensor& x, const Axes& axes, bool keep) {
    check_bool(op, "x", x);
    return reduced(op, what, x, axes, keep, DType::boolean);
}

}  // namespace

Tensor argmax(const Tensor& x, int axis, bool keep) { return arg_extreme("argmax", true, x, axis, keep); }
Tensor argmin(const Tensor& x, int axis, bool keep) { return arg_extreme("argmin", false, x, axis, keep); }
Tensor any(const Tensor& x, const Axes& axes, bool keep) { return bools("any", Reduce::max, x, axes, keep); }
Tensor all(const Tensor& x, const Axes& axes, bool keep) { return bools("all", Reduce::min, x, axes, keep); }

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keep) {
    check_floating("logsumexp", "x", x);
    const Kept kept("logsumexp", x, axes);
    if (kept.count() == 0)
        return record("logsumexp", full(reduced_shape(x.shape(), kept.axes, keep), -INFINITY, x.dtype(), x.device()),
                      wrt(x, [shape = x.shape()](const Tensor& g) { return zeros(shape, g.dtype(), g.device()); }));
    // Shifted by the maximum; a row that is all -inf (or holds inf) is left unshifted.
    const auto shift_of = [axes](const Tensor& x) {
        const Tensor largest = max(detach(x), axes, true);
        return where(is_finite(largest), largest, 0);
    };
    const Tensor y = in_f32(x, [&](const Tensor& x) {
        const NoGrad scope;
        const Tensor shift = shift_of(x), y = add(log(sum(exp(sub(x, shift)), axes, true)), shift);
        return keep ? y : reshape(y, reduced_shape(x.shape(), kept.axes, false));
    });
    return record("logsumexp", y.without_past(), wrt(x, [kept, axes, shift_of, x = saved(x)](const Tensor& g) {
                      const Tensor e = exp(sub(x(), shift_of(x()))), total = sum(e, axes, true);
                      return mul(kept.unreduced(g), where(equal(total, 0), 0, div(e, total)));
                  }));
}

Tensor norm(const Tensor& x, const Axes& axes, bool keep) {
    check_floating("norm", "x", x);
    const Kept kept("norm", x, axes);
    const Tensor y = [&] {
        const NoGrad scope;
        return in_f32(x, [&](const Tensor& x) { return sqrt(sum(square(x), axes, keep)); });
    }();
    return record("norm", y, wrt(x, [kept, x = saved(x)](const Tensor& g, const Tensor& y) {
                      const Tensor length = kept.unreduced(y);
                      return where(equal(length, 0), 0, mul(kept.unreduced(g), div(x(), length)));
                  }));
}

Tensor cumsum(const Tensor& x, int axis) {
    const int normal = normal_axis("cumsum", axis, x.rank());
    const Tensor from = is_floating(x.dtype()) ? x : cast(x, DType::i64);
    const Tensor y = Tensor::empty(x.shape(), from.dtype(), x.device());
    kernels::cumsum(from, normal, y);
    return record("cumsum", y,
                  wrt(x, [normal](const Tensor& g) { return flip(cumsum(flip(g, {normal}), normal), {normal}); }));
}

}  // namespace gradus
