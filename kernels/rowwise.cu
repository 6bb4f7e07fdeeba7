// Softmax and its kin on a card; see Note [Rows on a card]. Bytes an element (f32): 8 forward, 12 backward.
#include "gradus/kernels/rowwise.h"

#include "gradus/kernels/row.cuh"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {
namespace {

enum class Softmax { plain, logarithm, masked };

/// The mask of masked_softmax: row r starts at rows.offset(r).
struct Mask {
    const std::uint8_t* data;
    Walk rows;
    std::int64_t stride;
};

template <Softmax kind, class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads)
    softmax_kernel(const T* x, Mask mask, T* y, std::int64_t rows, std::int64_t n, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const T* from = x + r * n;
        T *to = y + r * n, *kept = cached ? cache + group.number() * n : nullptr;
        const std::uint8_t* sees = kind == Softmax::masked ? mask.data + mask.rows.offset(r) : nullptr;
        const auto read = [&](std::int64_t i) {
            Vector<T, V> v = load_part<V>(from + i);
            if constexpr (kind == Softmax::masked)
#pragma unroll
                for (int l = 0; l < V; ++l)
                    if (!sees[(i + l) * mask.stride]) v.lane[l] = T(-INFINITY);
            return v;
        };
        T top = T(-INFINITY);
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = read(i);
            if (kept) store_part<V>(kept + i, v);
#pragma unroll
            for (int l = 0; l < V; ++l) top = v.lane[l] > top ? v.lane[l] : top;
        });
        top = group.max(top);
        const bool nothing = kind == Softmax::masked && top == T(-INFINITY);
        const auto again = [&](std::int64_t i) { return kept ? load_part<V>(kept + i) : read(i); };
        T total = 0;
        if (!nothing)
            each_part<V>(group, n, [&](std::int64_t i) {
                Vector<T, V> v = again(i);
#pragma unroll
                for (int l = 0; l < V; ++l) {
                    const T e = weight_exp(v.lane[l] - top);
                    total += e;
                    if (kind != Softmax::logarithm) v.lane[l] = e;
                }
                if (kind != Softmax::logarithm && kept) store_part<V>(kept + i, v);
            });
        total = group.sum(total);
        const T factor = kind == Softmax::logarithm ? math::log(total) : nothing ? T(0) : T(1) / total;
        each_part<V>(group, n, [&](std::int64_t i) {
            Vector<T, V> v = again(i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                if (kind == Softmax::logarithm)
                    v.lane[l] = (v.lane[l] - top) - factor;  // x - top is exact for the largest ones
                else if (nothing)
                    v.lane[l] = T(0);
                else
                    v.lane[l] = (kept ? v.lane[l] : weight_exp(v.lane[l] - top)) * factor;
            }
            store_part<V>(to + i, v);
        });
    }
}

template <Softmax kind>
void run_softmax(const Tensor& x, const Mask& mask, const Tensor& y) {
    const std::int64_t n = row_width(x), rows = row_count(x);
    if (rows == 0 || n == 0) return;
    const RowLaunch launch(rows, n, size_of(x.dtype()), 1);
    const bool aligned = x.dtype() == DType::f64 ? rows_aligned<double>(n, x.data<double>(), y.data<double>())
                                                 : rows_aligned<float>(n, x.data<float>(), y.data<float>());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        GRADUS_LAUNCH((softmax_kernel<kind, T, lanes.value, whole.value>), x.device(), launch.grid, launch.block,
                      launch.shared_bytes, x.data<T>(), mask, y.data<T>(), rows, n, launch.cached);
    });
}

/// gx = y (g - sum of g y); masked: where y is 0 nothing is seen, and 0 · inf must not become NaN.
template <bool masked, class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads)
    softmax_backward_kernel(const T* g, const T* y, T* gx, std::int64_t rows, std::int64_t n) {
    GRADUS_SHARED(T, scratch, [64]);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const T *gradient = g + r * n, *weight = y + r * n;
        T* to = gx + r * n;
        const auto product = [](T slope, T w, T shift) { return masked && w == T(0) ? T(0) : (slope - shift) * w; };
        T dot = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> slope = load_part<V>(gradient + i), w = load_part<V>(weight + i);
#pragma unroll
            for (int l = 0; l < V; ++l) dot += product(slope.lane[l], w.lane[l], T(0));
        });
        dot = group.sum(dot);
        each_part<V>(group, n, [&](std::int64_t i) {
            Vector<T, V> slope = load_part<V>(gradient + i);
            const Vector<T, V> w = load_part<V>(weight + i);
#pragma unroll
            for (int l = 0; l < V; ++l) slope.lane[l] = product(slope.lane[l], w.lane[l], dot);
            store_part<V>(to + i, slope);
        });
    }
}

/// gx = g - e^y sum of g. A row that nobody asked about stays 0 even where y is NaN.
template <class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads)
    log_softmax_backward_kernel(const T* g, const T* y, T* gx, std::int64_t rows, std::int64_t n) {
    GRADUS_SHARED(T, scratch, [64]);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const T *gradient = g + r * n, *value = y + r * n;
        T* to = gx + r * n;
        T total = 0, asked = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> slope = load_part<V>(gradient + i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                total += slope.lane[l];
                if (slope.lane[l] != T(0)) asked = 1;
            }
        });
        total = group.sum(total);
        asked = group.max(asked);
        each_part<V>(group, n, [&](std::int64_t i) {
            Vector<T, V> slope = load_part<V>(gradient + i);
            const Vector<T, V> v = load_part<V>(value + i);
#pragma unroll
            for (int l = 0; l < V; ++l)
                if (asked != T(0)) slope.lane[l] -= weight_exp(v.lane[l]) * total;
            store_part<V>(to + i, slope);
        });
    }
}

bool three_aligned(std::int64_t n, const Tensor& a, const Tensor& b, const Tensor& c) {
    return (n * size_of(a.dtype())) % 16 == 0 && aligned16(a.address()) && aligned16(b.address()) &&
           aligned16(c.address());
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y) { run_softmax<Softmax::plain>(x, {}, y); }
void log_softmax(const Tensor& x, const Tensor& y) { run_softmax<Softmax::logarithm>(x, {}, y); }
void masked_softmax(const Tensor& x, const Tensor& visible, const Tensor& y) {
    Layout rows = visible.layout();
    const int last = rows.rank() - 1;
    const std::int64_t stride = last < 0 ? 1 : rows.strides[last];
    if (last >= 0) rows.shape[last] = 1;
    run_softmax<Softmax::masked>(x, {static_cast<const std::uint8_t*>(visible.address()), Walk(rows), stride}, y);
}

void softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx, bool masked) {
    const std::int64_t n = row_width(g), rows = row_count(g);
    if (rows == 0 || n == 0) return;
    const RowLaunch launch(rows, n, size_of(g.dtype()), 0);
    visit_rows(g.dtype(), three_aligned(n, g, y, gx), launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        if (masked)
            GRADUS_LAUNCH((softmax_backward_kernel<true, T, lanes.value, whole.value>), g.device(), launch.grid,
                          launch.block, 0, g.data<T>(), y.data<T>(), gx.data<T>(), rows, n);
        else
            GRADUS_LAUNCH((softmax_backward_kernel<false, T, lanes.value, whole.value>), g.device(), launch.grid,
                          launch.block, 0, g.data<T>(), y.data<T>(), gx.data<T>(), rows, n);
    });
}

void log_softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx) {
    const std::int64_t n = row_width(g), rows = row_count(g);
    if (rows == 0 || n == 0) return;
    const RowLaunch launch(rows, n, size_of(g.dtype()), 0);
    visit_rows(g.dtype(), three_aligned(n, g, y, gx), launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        GRADUS_LAUNCH((log_softmax_backward_kernel<T, lanes.value, whole.value>), g.device(), launch.grid, launch.block,
                      0, g.data<T>(), y.data<T>(), gx.data<T>(), rows, n);
    });
}

}  // namespace gradus::kernels::cuda
