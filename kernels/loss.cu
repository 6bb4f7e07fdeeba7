// Cross-entropy and negative log-likelihood on a card; see Note [Rows on a card]. Bytes a logit (f32): 4 forward, 8
// backward, which may write the gradient over the logits.
#include "gradus/kernels/loss.h"

#include "gradus/kernels/checked_numbers.cuh"
#include "gradus/kernels/index_checks.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/row.cuh"

namespace gradus::kernels::cuda {
namespace {

/// The targets with plain pointers, for logits of type T with C classes.
template <class T>
struct Targets {
    const std::int64_t* ids;
    const T* weights;  // or null
    std::int64_t C, ignore;
    double smoothing;

    Targets(const ClassTargets& t, std::int64_t classes)
        : ids(t.ids.data<std::int64_t>()),
          weights(t.weights.defined() ? t.weights.data<T>() : nullptr),
          C(classes),
          ignore(t.ignore),
          smoothing(t.smoothing) {}
    __device__ bool ignored(std::int64_t row) const { return ids[row] == ignore; }
    /// The target's own share of q, beside the share that every class has.
    __device__ double own(std::int64_t row) const {
        return (1 - smoothing) * (weights ? double(weights[ids[row]]) : 1.0);
    }
    __device__ double shared() const { return smoothing / double(C); }
    __device__ T weight(std::int64_t c) const { return weights ? weights[c] : T(1); }
};

template <class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_kernel(const T* x, Targets<T> t, T* losses, T* normalizer, std::int64_t rows, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t n = t.C, step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const T* from = x + r * n;
        T *kept = cached ? cache + group.number() * n : nullptr, top = T(-INFINITY);
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = load_part<V>(from + i);
            if (kept) store_part<V>(kept + i, v);
#pragma unroll
            for (int l = 0; l < V; ++l) top = v.lane[l] > top ? v.lane[l] : top;
        });
        top = group.max(top);
        const T* again = kept ? kept : from;
        T total = 0, below = 0, all_weights = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = load_part<V>(again + i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                total += weight_exp(v.lane[l] - top);
                if (t.smoothing > 0) below += (v.lane[l] - top) * t.weight(i + l), all_weights += t.weight(i + l);
            }
        });
        total = group.sum(total), below = group.sum(below), all_weights = group.sum(all_weights);
        if (group.lane() != 0) continue;
        // Kept apart, for their sum would round log of the sum away where the logits are large.
        const double log_total = ::log(double(total));
        normalizer[2 * r] = top, normalizer[2 * r + 1] = T(log_total);
        double loss = 0;
        if (!t.ignored(r)) {
            loss = t.own(r) * (log_total - (double(from[t.ids[r]]) - double(top)));
            if (t.smoothing > 0) loss += t.shared() * (double(all_weights) * log_total - double(below));
        }
        losses[r] = T(loss);
    }
}

template <class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads, 1)  // 1: no spilling for the next step of occupancy
    cross_entropy_backward_kernel(const T* x, Targets<T> t, const T* normalizer, const T* g, std::int64_t g_step, T* gx,
                                  std::int64_t rows) {
    GRADUS_SHARED(T, scratch, [64]);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t n = t.C, step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const bool ignored = t.ignored(r);
        T all_weights = T(n);
        if (t.weights && t.smoothing > 0) {
            all_weights = 0;
            each_part<1>(group, n, [&](std::int64_t i) { all_weights += t.weights[i]; });
            all_weights = group.sum(all_weights);
        }
        const double slope = double(g[r * g_step]), own = ignored ? 0 : t.own(r);
        const T scale = T(slope * (own + t.shared() * double(all_weights))), shared = T(slope * t.shared());
        const T top = normalizer[2 * r], log_total = normalizer[2 * r + 1];
        const std::int64_t target = ignored ? -1 : t.ids[r];
        each_part<V>(group, n, [&](std::int64_t i) {
            Vector<T, V> v = load_part<V>(x + r * n + i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                T p = weight_exp(v.lane[l] - top - log_total) * scale;
                if (t.smoothing > 0) p -= t.weight(i + l) * shared;
                if (i + l == target) p -= T(slope * own);
                v.lane[l] = ignored ? T(0) : p;
            }
            store_part<V>(gx + r * n + i, v);
        });
    }
}

__device__ __forceinline__ std::int64_t first_item() { return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ std::int64_t item_step() { return std::int64_t(gridDim.x) * blockDim.x; }

template <class T>
__global__ void __launch_bounds__(row_threads) nll_kernel(const T* x, Targets<T> t, T* losses, std::int64_t rows) {
    for (std::int64_t r = first_item(); r < rows; r += item_step())
        losses[r] = t.ignored(r) ? T(0) : T(-t.own(r)) * x[r * t.C + t.ids[r]];
}

/// gx = factor · q, with factor 1 where g is null (the rows of targets themselves) and -g else.
template <class T>
__global__ void __launch_bounds__(row_threads)
    target_rows_kernel(Targets<T> t, const T* g, std::int64_t g_step, T* q, std::int64_t count) {
    for (std::int64_t i = first_item(); i < count; i += item_step()) {
        const std::int64_t r = i / t.C, c = i % t.C;
        T value = 0;
        if (!t.ignored(r)) {
            if (t.smoothing > 0) value = T(t.shared() * double(t.weight(c)));
            if (c == t.ids[r]) value += T(t.own(r));
            if (g) value = T(-double(g[r * g_step]) * double(value));
        }
        q[i] = value;
    }
}

/// The sum of the kept rows' weights and the slope of a mean; one block, in a fixed order.
template <class T>
__global__ void __launch_bounds__(row_threads) divisor_kernel(Targets<T> t, std::int64_t rows, double* total) {
    GRADUS_SHARED(double, scratch, [32]);
    double sum = 0;
    for (std::int64_t r = threadIdx.x; r < rows; r += row_threads)
        if (!t.ignored(r)) sum += t.weights ? double(t.weights[t.ids[r]]) : 1.0;
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) total[0] = sum, total[1] = sum != 0 ? 1 / sum : 1;
}

}  // namespace

ClassTargets checked_targets(const char* op, const ClassTargets& targets, const Shape& shape, std::int64_t classes) {
    if (targets.ids.numel() == 0) return targets;
    ClassTargets safe = targets;
    safe.ids = checked_numbers(targets.ids, classes, targets.ignore,
                               [=, ignore = targets.ignore](std::int64_t position, std::int64_t value) {
                                   return target_fault(op, shape, position, value, classes, ignore);
                               });
    return safe;
}

MeanDivisor mean_divisor(const ClassTargets& targets) {
    const Tensor both = Tensor::empty({2}, DType::f64, targets.ids.device());
    visit_real(targets.weights.defined() ? targets.weights.dtype() : DType::f32, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((divisor_kernel<T>), both.device(), 1, row_threads, 0, Targets<T>(targets, 0),
                      targets.ids.numel(), both.data<double>());
    });
    return {both.with_layout(Layout(Shape{})), both.with_layout(Layout(Shape{}, Strides{}, 1))};
}

void target_rows(const ClassTargets& targets, const Tensor& q) {
    visit_real(q.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((target_rows_kernel<T>), q.device(), grid_for(q.numel(), row_threads), row_threads, 0,
                      Targets<T>(targets, q.size(1)), static_cast<const T*>(nullptr), std::int64_t(0), q.data<T>(),
                      q.numel());
    });
}

void cross_entropy(const Tensor& x, const ClassTargets& targets, const Tensor& losses, const Tensor& normalizer) {
    const std::int64_t rows = x.size(0), C = x.size(1);
    if (rows == 0) return;
    const RowLaunch launch(rows, C, size_of(x.dtype()), 1);
    const bool aligned = (C * size_of(x.dtype())) % 16 == 0 && aligned16(x.address());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        GRADUS_LAUNCH((cross_entropy_kernel<T, lanes.value, whole.value>), x.device(), launch.grid, launch.block,
                      launch.shared_bytes, x.data<T>(), Targets<T>(targets, C), losses.data<T>(), normalizer.data<T>(),
                      rows, launch.cached);
    });
}

void cross_entropy_backward(const Tensor& x, const ClassTargets& targets, const Tensor& normalizer, const Tensor& g,
                            const Tensor& gx) {
    const std::int64_t rows = x.size(0), C = x.size(1), g_step = g.rank() == 0 ? 0 : 1;
    if (rows == 0 || C == 0) return;
    const RowLaunch launch(rows, C, size_of(x.dtype()), 0);
    const bool aligned = (C * size_of(x.dtype())) % 16 == 0 && aligned16(x.address()) && aligned16(gx.address());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        GRADUS_LAUNCH((cross_entropy_backward_kernel<T, lanes.value, whole.value>), x.device(), launch.grid,
                      launch.block, 0, x.data<T>(), Targets<T>(targets, C), normalizer.data<T>(), g.data<T>(), g_step,
                      gx.data<T>(), rows);
    });
}

void nll(const Tensor& x, const ClassTargets& targets, const Tensor& losses) {
    visit_real(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((nll_kernel<T>), x.device(), grid_for(x.size(0), row_threads), row_threads, 0, x.data<T>(),
                      Targets<T>(targets, x.size(1)), losses.data<T>(), x.size(0));
    });
}

void nll_backward(const ClassTargets& targets, const Tensor& g, const Tensor& gx) {
    visit_real(gx.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((target_rows_kernel<T>), gx.device(), grid_for(gx.numel(), row_threads), row_threads, 0,
                      Targets<T>(targets, gx.size(1)), g.data<T>(), std::int64_t(g.rank() == 0 ? 0 : 1), gx.data<T>(),
                      gx.numel());
    });
}

}  // namespace gradus::kernels::cuda
