#include "gradus/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gradus/kernels/parallel.h"
#include "gradus/kernels/update_checks.h"

namespace gradus::kernels {
namespace {

constexpr std::int64_t grain = 16384;
constexpr std::int64_t sum_block = 16384;  // part of the result: another size gives other last bits
constexpr int lanes = 16;

/// What a dtype is computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

enum class Momentum { none, first, plain, nesterov };

template <Momentum kind, class T, class W = Wide<T>>
void sgd_range(T* __restrict p, const T* __restrict gradient, W* __restrict buffer, std::int64_t n, const SgdStep& step,
               W scale) {
    const W lr = W(step.lr), decay = W(step.weight_decay), momentum = W(step.momentum), fresh = W(1 - step.dampening);
    const W ahead = step.nesterov ? momentum : W(0);
    for (std::int64_t i = 0; i < n; ++i) {
        const W x = W(p[i]), g = W(gradient[i]) * scale + decay * x;
        W direction = g;
        if constexpr (kind != Momentum::none) {
            const W b = kind == Momentum::first ? g : momentum * buffer[i] + fresh * g;
            buffer[i] = b;
            if constexpr (kind == Momentum::first)
                direction = step.nesterov ? g + ahead * b : b;
            else
                direction = kind == Momentum::nesterov ? g + momentum * b : b;
        }
        p[i] = T(x - lr * direction);
    }
}

template <class T, class W = Wide<T>>
void adam_range(T* __restrict p, const T* __restrict gradient, W* __restrict mean, W* __restrict square, std::int64_t n,
                const AdamStep& step, W scale) {
    const double correction1 = 1 - std::pow(step.beta1, double(step.t));
    const double correction2 = 1 - std::pow(step.beta2, double(step.t));
    const W size = W(step.lr / correction1), root = W(1 / std::sqrt(correction2)), eps = W(step.eps);
    const W beta1 = W(step.beta1), fresh1 = W(1 - step.beta1), beta2 = W(step.beta2), fresh2 = W(1 - step.beta2);
    const W keep = W(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
    const W decay = W(step.decoupled ? 0 : step.weight_decay);
    for (std::int64_t i = 0; i < n; ++i) {
        const W x = W(p[i]), g = W(gradient[i]) * scale + decay * x;
        const W m = beta1 * mean[i] + fresh1 * g, v = beta2 * square[i] + fresh2 * (g * g);
        mean[i] = m;
        square[i] = v;
        p[i] = T(x * keep - size * (m / (std::sqrt(v) * root + eps)));
    }
}

template <class T>
double block_sum(const T* x, std::int64_t n) {
    double partial[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (int k = 0; k < lanes; ++k) {
            const double value = double(Wide<T>(x[i + k]));
            partial[k] += value * value;
        }
    for (int k = 0; i + k < n; ++k) {
        const double value = double(Wide<T>(x[i + k]));
        partial[k] += value * value;
    }
    for (int width = lanes / 2; width > 0; width /= 2)
        for (int k = 0; k < width; ++k) partial[k] += partial[k + width];
    return partial[0];
}

double sum_of_squares(const Tensor& x) {
    const std::int64_t n = x.numel(), blocks = (n + sum_block - 1) / sum_block;
    if (n == 0) return 0;
    const Tensor partial = Tensor::empty({blocks}, DType::f64, Device{});
    double* sums = partial.data<double>();
    visit_floating("sums_of_squares", x, [&](auto zero) {
        using T = decltype(zero);
        const T* values = x.data<T>();
        parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t block = begin; block < end; ++block)
                sums[block] = block_sum(values + block * sum_block, std::min(sum_block, n - block * sum_block));
        });
    });
    double total = 0;
    for (std::int64_t block = 0; block < blocks; ++block) total += sums[block];
    return total;
}

double factor_of(const char* op, const GradientScale& scale, Device device) {
    check_scale(op, scale, device);
    if (!scale.squares.defined()) return scale.scale;
    return scale.scale * clip_factor(scale.scale * std::sqrt(scale.squares.item()), scale.limit);
}

}  // namespace

DType state_dtype(DType parameter) { return parameter == DType::f64 ? DType::f64 : DType::f32; }

void cpu::sgd(std::span<const SgdUpdate> updates, const GradientScale& scale) {
    const Device device = updates.front().parameter.device();
    const double factor = factor_of("sgd", scale, device);
    for (const SgdUpdate& u : updates) check_update(u, device);
    for (const SgdUpdate& u : updates)
        visit_floating("sgd", u.parameter, [&](auto zero) {
            using T = decltype(zero);
            using W = Wide<T>;
            T* p = u.parameter.data<T>();
            const T* g = u.gradient.data<T>();
            W* b = u.buffer.defined() ? u.buffer.data<W>() : nullptr;
            const SgdStep& step = u.step;
            parallel_for(u.parameter.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
                const std::int64_t n = end - begin;
                W* slice = b ? b + begin : nullptr;
                if (!b)
                    sgd_range<Momentum::none>(p + begin, g + begin, slice, n, step, W(factor));
                else if (step.first)
                    sgd_range<Momentum::first>(p + begin, g + begin, slice, n, step, W(factor));
                else if (step.nesterov)
                    sgd_range<Momentum::nesterov>(p + begin, g + begin, slice, n, step, W(factor));
                else
                    sgd_range<Momentum::plain>(p + begin, g + begin, slice, n, step, W(factor));
            });
        });
    bump_versions(updates);
}

void cpu::adam(std::span<const AdamUpdate> updates, const GradientScale& scale) {
    const Device device = updates.front().parameter.device();
    const double factor = factor_of("adam", scale, device);
    for (const AdamUpdate& u : updates) check_update(u, device);
    for (const AdamUpdate& u : updates)
        visit_floating("adam", u.parameter, [&](auto zero) {
            using T = decltype(zero);
            using W = Wide<T>;
            T* p = u.parameter.data<T>();
            const T* g = u.gradient.data<T>();
            W *m = u.mean.data<W>(), *v = u.square.data<W>();
            parallel_for(u.parameter.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
                adam_range(p + begin, g + begin, m + begin, v + begin, end - begin, u.step, W(factor));
            });
        });
    bump_versions(updates);
}

Tensor cpu::sums_of_squares(std::span<const Tensor> xs) {
    const Tensor sums = Tensor::empty({std::int64_t(xs.size()) + 1}, DType::f64, xs.front().device());
    double* each = sums.data<double>();
    double total = 0;
    for (std::size_t i = 0; i < xs.size(); ++i) total += each[i] = sum_of_squares(xs[i]);
    each[xs.size()] = total;
    return sums;
}

void cpu::scale_in_place(const Tensor& x, double factor) {
    visit_floating("scale_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        T* values = x.data<T>();
        const Wide<T> scale = Wide<T>(factor);
        parallel_for(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) values[i] = T(Wide<T>(values[i]) * scale);
        });
    });
    x.storage().bump_version();
}

void cpu::clamp_in_place(const Tensor& x, double low, double high) {
    visit_floating("clamp_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        using W = Wide<T>;
        T* values = x.data<T>();
        const W l = W(low), h = W(high);
        parallel_for(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const W value = W(values[i]);
                values[i] = T(value < l ? l : value > h ? h : value);
            }
        });
    });
    x.storage().bump_version();
}

}  // namespace gradus::kernels
