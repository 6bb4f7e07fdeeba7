#include "gradus/kernels/loss.h"

#include "gradus/kernels/index_checks.h"
#include "gradus/kernels/parallel.h"
#include "gradus/kernels/row.h"

namespace gradus::kernels::cpu {
namespace {

/// The targets with plain pointers, for logits of type T with C classes.
template <class T>
struct Targets {
    const std::int64_t* ids;
    const T* weights;
    std::int64_t C, ignore;
    double smoothing, all_weights;  // all_weights: Σ over the classes

    Targets(const ClassTargets& t, std::int64_t classes)
        : ids(t.ids.data<std::int64_t>()),
          weights(t.weights.defined() ? t.weights.data<T>() : nullptr),
          C(classes),
          ignore(t.ignore),
          smoothing(t.smoothing),
          all_weights(double(classes)) {
        if (!weights) return;
        all_weights = 0;
        for (std::int64_t c = 0; c < C; ++c) all_weights += double(weights[c]);
    }
    bool ignored(std::int64_t row) const { return ids[row] == ignore; }
    /// The target's own share of q, beside the share that every class has.
    double own(std::int64_t row) const { return (1 - smoothing) * (weights ? double(weights[ids[row]]) : 1.0); }
    double shared() const { return C == 0 ? 0 : smoothing / double(C); }
    double sum(std::int64_t row) const { return own(row) + shared() * all_weights; }
};

/// f(row number) for every row of (N, C), split over the cores.
template <class F>
void each_row(std::int64_t rows, std::int64_t C, F&& f) {
    parallel_for(rows, row_grain(C), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) f(r);
    });
}

template <class T>
T loss_row(const T* x, const Targets<T>& t, std::int64_t r, T* normalizer) {
    const T top = max_row<T>(t.C, [=](Part<T> part) { return part.of(x, T(-INFINITY)); });
    const double total = sum_row<T>(t.C, [=](Part<T> part) { return weight_exp(part.of(x, T(-INFINITY)) - top); });
    // Kept apart, for their sum would round log Σ away where the logits are large.
    const double log_total = std::log(total);
    normalizer[0] = top, normalizer[1] = T(log_total);
    if (t.ignored(r)) return T(0);
    double loss = t.own(r) * (log_total - (double(x[t.ids[r]]) - double(top)));
    if (t.smoothing > 0) {
        const T* w = t.weights;
        const double below = sum_row<T>(t.C, [=](Part<T> part) {
            const Pack<T> d = part.of(x, top) - top;
            return w ? d * part.of(w) : d;
        });
        loss += t.shared() * (t.all_weights * log_total - below);
    }
    return T(loss);
}

template <class T>
void slope_row(const T* x, const Targets<T>& t, std::int64_t r, const T* normalizer, double g, T* gx) {
    if (t.ignored(r)) {
        std::fill_n(gx, t.C, T(0));
        return;
    }
    const T top = normalizer[0], log_total = normalizer[1], scale = T(g * t.sum(r)), shared = T(g * t.shared());
    const T* w = t.weights;
    each_part<T>(0, t.C, [=](Part<T> part) {
        Pack<T> v = weight_exp(part.of(x) - top - log_total) * scale;
        if (shared != 0) v -= w ? part.of(w) * shared : math::k<Pack<T>>(1) * shared;
        part.put(gx, v);
    });
    gx[t.ids[r]] -= T(g * t.own(r));
}

}  // namespace

ClassTargets checked_targets(const char* op, const ClassTargets& targets, const Shape& shape, std::int64_t classes) {
    const std::int64_t* ids = targets.ids.data<std::int64_t>();
    for (std::int64_t i = 0; i < targets.ids.numel(); ++i)
        if (ids[i] != targets.ignore && (ids[i] < 0 || ids[i] >= classes))
            raise(target_fault(op, shape, i, ids[i], classes, targets.ignore));
    return targets;
}

MeanDivisor mean_divisor(const ClassTargets& targets) {
    const std::int64_t* ids = targets.ids.data<std::int64_t>();
    double total = 0;
    const auto add_up = [&](auto weight) {
        for (std::int64_t i = 0; i < targets.ids.numel(); ++i)
            if (ids[i] != targets.ignore) total += weight(ids[i]);
    };
    if (!targets.weights.defined()) {
        add_up([](std::int64_t) { return 1.0; });
    } else {
        visit_real(targets.weights.dtype(), [&]<class T>(T) {
            add_up([w = targets.weights.data<T>()](std::int64_t id) { return double(w[id]); });
        });
    }
    const Device device = targets.ids.device();
    return {Tensor::scalar(total, DType::f64, device), Tensor::scalar(total != 0 ? 1 / total : 1, DType::f64, device)};
}

void target_rows(const ClassTargets& targets, const Tensor& q) {
    visit_real(q.dtype(), [&]<class T>(T) {
        const Targets<T> t(targets, q.size(1));
        T* out = q.data<T>();
        each_row(q.size(0), t.C, [&](std::int64_t r) {
            T* row = out + r * t.C;
            std::fill_n(row, t.C, T(0));
            if (t.ignored(r)) return;
            if (t.smoothing > 0)
                for (std::int64_t c = 0; c < t.C; ++c)
                    row[c] = T(t.shared() * (t.weights ? double(t.weights[c]) : 1.0));
            row[t.ids[r]] += T(t.own(r));
        });
    });
}

void cross_entropy(const Tensor& x, const ClassTargets& targets, const Tensor& losses, const Tensor& normalizer) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const Targets<T> t(targets, x.size(1));
        const T* px = x.data<T>();
        T *py = losses.data<T>(), *pn = normalizer.data<T>();
        each_row(x.size(0), t.C, [&](std::int64_t r) { py[r] = loss_row(px + r * t.C, t, r, pn + 2 * r); });
    });
}

void cross_entropy_backward(const Tensor& x, const ClassTargets& targets, const Tensor& normalizer, const Tensor& g,
                            const Tensor& gx) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const Targets<T> t(targets, x.size(1));
        const T *px = x.data<T>(), *pn = normalizer.data<T>(), *pg = g.data<T>();
        T* out = gx.data<T>();
        const std::int64_t step = g.rank() == 0 ? 0 : 1;
        each_row(x.size(0), t.C, [&](std::int64_t r) {
            slope_row(px + r * t.C, t, r, pn + 2 * r, double(pg[r * step]), out + r * t.C);
        });
    });
}

void nll(const Tensor& x, const ClassTargets& targets, const Tensor& losses) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const Targets<T> t(targets, x.size(1));
        const T* px = x.data<T>();
        T* out = losses.data<T>();
        each_row(x.size(0), 1,
                 [&](std::int64_t r) { out[r] = t.ignored(r) ? T(0) : T(-t.own(r)) * px[r * t.C + t.ids[r]]; });
    });
}

void nll_backward(const ClassTargets& targets, const Tensor& g, const Tensor& gx) {
    visit_real(gx.dtype(), [&]<class T>(T) {
        const Targets<T> t(targets, gx.size(1));
        const T* pg = g.data<T>();
        T* out = gx.data<T>();
        const std::int64_t step = g.rank() == 0 ? 0 : 1;
        each_row(gx.size(0), t.C, [&](std::int64_t r) {
            T* row = out + r * t.C;
            std::fill_n(row, t.C, T(0));
            if (!t.ignored(r)) row[t.ids[r]] = T(-t.own(r) * double(pg[r * step]));
        });
    });
}

}  // namespace gradus::kernels::cpu
