// Ops over rows and their rules: softmax and its kin, layer norm, RMS norm, layer norm of a residual.
//
// First-order rules are fused kernels; while the backward pass is itself being recorded a rule is made of ops instead,
// so that it can be differentiated again.
#include "gradus/autograd/rules.h"
#include "gradus/kernels/rowwise.h"

namespace gradus {
namespace {

bool is_half(const Tensor& x) { return x.dtype() == DType::bf16 || x.dtype() == DType::f16; }

/// f along the last axis, whichever one is asked for; 16-bit floats go through f32.
template <class F>
Tensor along_axis(const char* op, const Tensor& x, int axis, F f) {
    check_floating(op, "x", x);
    if (x.rank() == 0) return reshape(along_axis(op, reshape(x, {1}), axis, f), {});
    axis = normal_axis(op, axis, x.rank());
    if (is_half(x)) return cast(along_axis(op, cast(x, DType::f32), axis, f), x.dtype());
    if (axis != x.rank() - 1) return transpose(f(contiguous(transpose(x, axis, -1))), axis, -1);
    return f(contiguous(x));
}

Tensor softmax_slope(const Tensor& g, const Tensor& y, bool masked) {
    if (grad_enabled()) {
        // What cannot be seen has no say, whatever comes back to it.
        const Tensor heard = masked ? where(equal(y, 0.0), 0.0, g) : g;
        return mul(sub(heard, sum(mul(heard, y), {-1}, true)), y);
    }
    const Tensor gx = Tensor::empty(y.shape(), y.dtype(), y.device());
    kernels::softmax_backward(contiguous(g), y, gx, masked);
    return gx;
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
    return along_axis("softmax", x, axis, [](const Tensor& rows) {
        const Tensor y = Tensor::empty_like(rows);
        kernels::softmax(rows, y);
        return record("softmax", y,
                      wrt(rows, [](const Tensor& g, const Tensor& result) { return softmax_slope(g, result, false); }));
    });
}

Tensor log_softmax(const Tensor& x, int axis) {
    return along_axis("log_softmax", x, axis, [](const Tensor& rows) {
        const Tensor y = Tensor::empty_like(rows);
        kernels::log_softmax(rows, y);
        return record("log_softmax", y, wrt(rows, [](const Tensor& g, const Tensor& result) {
                          if (grad_enabled()) {
                              const Tensor asked = greater(sum(abs(detach(g)), {-1}, true), 0.0);
                              return where(asked, sub(g, mul(exp(result), sum(g, {-1}, true))), g);
                          }
                          const Tensor gx = Tensor::empty_like(result);
                          kernels::log_softmax_backward(contiguous(g), result, gx);
                          return gx;
                      }));
    });
}

Tensor masked_softmax(const Tensor& x, const Tensor& visible, int axis) {
    check_devices("masked_softmax", {{"x", x}, {"visible", visible}});
    check_bool("masked_softmax", "visible", visible);
    check(visible.rank() <= x.rank() && broadcast("masked_softmax", x.shape(), visible.shape()) == x.shape(),
          "masked_softmax: the mask does not broadcast to x: ", visible.shape(), " and ", x.shape());
    Layout mask = visible.layout().expand("masked_softmax", x.shape());
    if (x.rank() == 0) {
        mask = mask.expand("masked_softmax", {1});
    } else {
        const int from = normal_axis("masked_softmax", axis, x.rank()), last = x.rank() - 1;
        std::swap(mask.shape[from], mask.shape[last]), std::swap(mask.strides[from], mask.strides[last]);
    }
    return along_axis("masked_softmax", x, axis, [seen = visible.with_layout(mask)](const Tensor& rows) {
        const Tensor y = Tensor::empty_like(rows);
        kernels::masked_softmax(rows, seen, y);
        return record("masked_softmax", y,
                      wrt(rows, [](const Tensor& g, const Tensor& result) { return softmax_slope(g, result, true); }));
    });
}

namespace {

struct Norm {
    const char* op;
    double eps;
    bool centred;
    Axes axes;    ///< the trailing axes it runs over
    Shape shape;  ///< their sizes

    /// (x - mean) rstd, or x rstd, as ops.
    void parts(const Tensor& x, Tensor& hat, Tensor& rstd) const {
        const Tensor d = centred ? sub(x, mean(x, axes, true)) : x;
        rstd = rsqrt(add(mean(square(d), axes, true), eps));
        hat = mul(d, rstd);
    }

    /// The gradients of x, weight and bias as ops.
    std::vector<Tensor> slopes(const Tensor& g, const Tensor& x, const Tensor& weight, bool with_bias) const {
        Tensor hat, rstd;
        parts(x, hat, rstd);
        const Tensor h = weight.defined() ? mul(g, weight) : g;
        Tensor gx = sub(h, mul(hat, mean(mul(h, hat), axes, true)));
        if (centred) gx = sub(gx, mean(h, axes, true));
        return {mul(gx, rstd), weight.defined() ? sum_to(mul(g, hat), shape) : Tensor(),
                with_bias ? sum_to(g, shape) : Tensor()};
    }
};

Tensor norm_rows(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor rows = contiguous(x), w = weight.defined() ? contiguous(weight) : weight,
                 b = bias.defined() ? contiguous(bias) : bias;
    const std::int64_t n = norm.shape.product(), count = n == 0 ? 0 : x.numel() / n;
    const Tensor y = Tensor::empty_like(rows), rstd = Tensor::empty({count}, x.dtype(), x.device());
    const Tensor mean = norm.centred ? Tensor::empty({count}, x.dtype(), x.device()) : Tensor();
    kernels::row_norm(rows, w, b, norm.eps, norm.centred, y, mean, rstd);
    const bool want_x = recording(rows), want_w = w.defined() && recording(w), want_b = b.defined() && recording(b);
    return record_joint(
        norm.op, y, {rows, w, b},
        [=, x = saved(rows), weight = saved(w)](std::span<const Tensor> gradients) -> std::vector<Tensor> {
            if (grad_enabled()) return norm.slopes(gradients[0], x(), weight(), want_b);
            const auto like = [](const Tensor& t, bool wanted) { return wanted ? Tensor::empty_like(t) : Tensor(); };
            const Tensor gx = like(x(), want_x), gw = like(weight(), want_w);
            const Tensor gb = want_b ? Tensor::empty(norm.shape, x().dtype(), x().device()) : Tensor();
            kernels::row_norm_backward(contiguous(gradients[0]), x(), weight(), mean, rstd, gx, gw, gb);
            return {gx, gw, gb};
        });
}

/// Checks the parameters; x is what is normalised.
Norm norm_of(const char* op, bool centred, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    const Tensor& like = weight.defined() ? weight : bias;
    const int count = like.defined() ? like.rank() : 1;
    check(count >= 1 && x.rank() >= count, op, ": x has too few axes: ", x.shape(), ", it runs over the last ", count);
    Norm norm{op, eps, centred, {}, {}};
    for (int i = x.rank() - count; i < x.rank(); ++i) norm.axes.push_back(i), norm.shape.push_back(x.size(i));
    for (const Tensor& t : {weight, bias})
        check(!t.defined() || t.shape() == norm.shape, op,
              ": weight and bias must have the sizes of x's last axes: ", t.defined() ? t.shape() : Shape(),
              " for x of ", x.shape());
    check(eps >= 0, op, ": eps must not be negative: got ", eps);
    return norm;
}

Tensor as(const Tensor& x, DType dtype) { return !x.defined() || x.dtype() == dtype ? x : cast(x, dtype); }

/// Goes through f32 for 16-bit floats.
Tensor normalised(const char* op, bool centred, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
    check_floating(op, "x", x);
    const Norm norm = norm_of(op, centred, x, weight, bias, eps);
    const DType dtype = is_half(x) ? DType::f32 : x.dtype();
    return as(norm_rows(norm, as(x, dtype), as(weight, dtype), as(bias, dtype)), x.dtype());
}

/// Layer norm of residual + drop(x); all of one dtype.
Tensor residual_norm_rows(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& weight,
                          const Tensor& bias, double p, const Draw& draw) {
    const Tensor rows = contiguous(x), beside = contiguous(residual),
                 w = weight.defined() ? contiguous(weight) : weight, b = bias.defined() ? contiguous(bias) : bias;
    const std::int64_t n = norm.shape.product(), count = n == 0 ? 0 : x.numel() / n;
    const auto statistic = [&] { return Tensor::empty({count}, x.dtype(), x.device()); };
    const Tensor s = Tensor::empty_like(rows), y = Tensor::empty_like(rows), mean = statistic(), rstd = statistic();
    kernels::residual_norm(rows, beside, p, draw, w, b, norm.eps, s, y, mean, rstd);
    // The sum has a past of its own, for gradients of gradients. It holds no elements of x or the residual, so neither
    // is kept for backward.
    const auto dropped = [=](const Tensor& g) { return p == 0 ? g : drop(g, p, draw); };
    const Tensor sum = record(norm.op, s, wrt(rows, dropped), wrt(beside, [](const Tensor& g) { return g; }));
    const bool want_x = recording(rows), want_r = recording(beside), want_w = w.defined() && recording(w),
               want_b = b.defined() && recording(b);
    return record_joint(
        norm.op, y, {rows, beside, w, b},
        [=, sum = saved(sum), weight = saved(w)](std::span<const Tensor> gradients) -> std::vector<Tensor> {
            if (grad_enabled()) {
                std::vector<Tensor> all = norm.slopes(gradients[0], sum(), weight(), want_b);
                return {want_x ? dropped(all[0]) : Tensor(), all[0], all[1], all[2]};
            }
            const auto like = [](const Tensor& t, bool wanted) { return wanted ? Tensor::empty_like(t) : Tensor(); };
            const Tensor g = contiguous(gradients[0]), gw = like(weight(), want_w);
            const Tensor gb = want_b ? Tensor::empty(norm.shape, g.dtype(), g.device()) : Tensor();
            if (p == 0) {  // x and the residual have one gradient
                const Tensor gs = like(g, want_x || want_r);
                kernels::row_norm_backward(g, sum(), weight(), mean, rstd, gs, gw, gb);
                return {gs, gs, gw, gb};
            }
            const Tensor gx = like(g, want_x), gr = like(g, want_r);
            kernels::residual_norm_backward(g, sum(), weight(), mean, rstd, p, draw, gx, gr, gw, gb);
            return {gx, gr, gw, gb};
        });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    return normalised("layer_norm", true, x, weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    check(!weight.defined() || weight.rank() == 1, "rms_norm: weight must have one axis, x's last: got ",
          weight.defined() ? weight.shape() : Shape());
    return normalised("rms_norm", false, x, weight, {}, eps);
}

Tensor dropout_add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                              double p, double eps, bool training, Generator* generator) {
    constexpr const char* op = "dropout_add_layer_norm";
    check_devices(op, {{"x", x}, {"residual", residual}, {"weight", weight}, {"bias", bias}});
    check_floating(op, "x", x);
    check_floating(op, "residual", residual);
    check(x.shape() == residual.shape(), op, ": x and residual must have one shape: got ", x.shape(), " and ",
          residual.shape(), ": expand one to the other");
    check_dropout(op, p);
    const Norm norm = norm_of(op, true, x, weight, bias, eps);
    const DType result = promote(x.dtype(), residual.dtype()), dtype = result == DType::f64 ? result : DType::f32;
    if (!training) p = 0;
    const Draw draw = dropout_draw(op, x, p, generator);
    return as(residual_norm_rows(norm, as(x, dtype), as(residual, dtype), as(weight, dtype), as(bias, dtype), p, draw),
              result);
}

}  // namespace gradus
