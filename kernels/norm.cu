// Layer norm and RMS norm on a card; see Note [Rows on a card]. Bytes an element (f32): 8 forward, 12 backward; the
// gradients of weight and bias are added up in the same pass, strip by strip of rows, and then over the strips.
#include "gradus/kernels/row.cuh"
#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cuda {
namespace {

template <class T>
const T* data_or_null(const Tensor& x) {
    return x.defined() ? x.data<T>() : nullptr;
}

/// What a norm reads and writes; weight, bias and mean may be null.
template <class T>
struct Norm {
    const T *x, *weight, *bias;
    T *y, *mean, *rstd;
    double eps;
};

template <class T, int V, bool whole_block>
__global__ void __launch_bounds__(row_threads)
    norm_kernel(Norm<T> norm, std::int64_t rows, std::int64_t n, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const T* from = norm.x + r * n;
        T *to = norm.y + r * n, *kept = cached ? cache + group.number() * n : nullptr;
        T sum = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = load_part<V>(from + i);
            if (kept) store_part<V>(kept + i, v);
#pragma unroll
            for (int l = 0; l < V; ++l) sum += v.lane[l];
        });
        const T centre = norm.mean ? group.sum(sum) / T(n) : T(0);
        const T* again = kept ? kept : from;
        // Two passes: E[x²] - E[x]² would cancel where the mean is large (the case of BB-042).
        T square = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = load_part<V>(again + i);
#pragma unroll
            for (int l = 0; l < V; ++l) square += (v.lane[l] - centre) * (v.lane[l] - centre);
        });
        const T scale = T(1 / ::sqrt(double(group.sum(square)) / double(n) + norm.eps));
        if (group.lane() == 0) {
            if (norm.mean) norm.mean[r] = centre;
            norm.rstd[r] = scale;
        }
        each_part<V>(group, n, [&](std::int64_t i) {
            Vector<T, V> v = load_part<V>(again + i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                v.lane[l] = (v.lane[l] - centre) * scale;
                if (norm.weight) v.lane[l] *= norm.weight[i + l];
                if (norm.bias) v.lane[l] += norm.bias[i + l];
            }
            store_part<V>(to + i, v);
        });
    }
}

template <class T>
struct NormSlopes {
    const T *g, *x, *weight, *mean, *rstd;
    T* gx;       // null: not wanted
    T* partial;  // (strips, 2, n): of weight and bias; null: not wanted
};

/// A block a strip of rows. Each thread keeps to its own columns, so the sums over the rows of a strip are its alone.
template <class T>
__global__ void __launch_bounds__(row_threads)
    norm_backward_kernel(NormSlopes<T> s, std::int64_t rows, std::int64_t n, std::int64_t strip, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, true> group(scratch);
    T* const sums = s.partial ? (cached ? cache : s.partial + std::int64_t(blockIdx.x) * 2 * n) : nullptr;
    if (sums) each_part<1>(group, n, [&](std::int64_t i) { sums[i] = sums[n + i] = T(0); });
    const std::int64_t begin = std::int64_t(blockIdx.x) * strip, end = begin + strip < rows ? begin + strip : rows;
    for (std::int64_t r = begin; r < end; ++r) {
        const T *g = s.g + r * n, *x = s.x + r * n;
        const T centre = s.mean ? s.mean[r] : T(0), scale = s.rstd[r];
        T first = 0, second = 0;
        each_part<1>(group, n, [&](std::int64_t i) {
            const T slope = g[i], hat = (x[i] - centre) * scale;
            if (sums) sums[i] += slope * hat, sums[n + i] += slope;
            const T h = s.weight ? slope * s.weight[i] : slope;
            first += h, second += h * hat;
        });
        first = group.sum(first), second = group.sum(second);
        if (!s.gx) continue;
        const T m = s.mean ? first / T(n) : T(0), v = second / T(n);
        each_part<1>(group, n, [&](std::int64_t i) {
            const T hat = (x[i] - centre) * scale, h = s.weight ? g[i] * s.weight[i] : g[i];
            s.gx[r * n + i] = (h - m - hat * v) * scale;
        });
    }
    if (sums && cached)
        each_part<1>(group, n, [&](std::int64_t i) {
            T* out = s.partial + std::int64_t(blockIdx.x) * 2 * n;
            out[i] = sums[i], out[n + i] = sums[n + i];
        });
}

/// out[i] = sum over the strips, in order, in f64.
template <class T>
__global__ void __launch_bounds__(row_threads)
    norm_sums_kernel(const T* partial, std::int64_t strips, std::int64_t n, T* gweight, T* gbias) {
    const std::int64_t i = std::int64_t(blockIdx.x) * row_threads + threadIdx.x;
    if (i >= n) return;
    double weight = 0, bias = 0;
    for (std::int64_t s = 0; s < strips; ++s) {
        weight += double(partial[s * 2 * n + i]);
        bias += double(partial[(s * 2 + 1) * n + i]);
    }
    if (gweight) gweight[i] = T(weight);
    if (gbias) gbias[i] = T(bias);
}

/// Rows of a strip: at least 8, at most so few that there are 528 strips (4 a multiprocessor of an H200). The sizes
/// alone decide, so that sums do not depend on the card.
std::int64_t strip_rows(std::int64_t rows) { return std::max<std::int64_t>(8, ceil_div(rows, 528)); }

}  // namespace

void row_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centred, const Tensor& y,
              const Tensor& mean, const Tensor& rstd) {
    const std::int64_t rows = rstd.numel();
    if (rows == 0) return;
    const std::int64_t n = x.numel() / rows;
    const RowLaunch launch(rows, n, size_of(x.dtype()), 1);
    const bool aligned = (n * size_of(x.dtype())) % 16 == 0 && aligned16(x.address()) && aligned16(y.address());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        const Norm<T> norm{x.data<T>(),
                           data_or_null<T>(weight),
                           data_or_null<T>(bias),
                           y.data<T>(),
                           centred ? mean.data<T>() : nullptr,
                           rstd.data<T>(),
                           eps};
        GRADUS_LAUNCH((norm_kernel<T, lanes.value, whole.value>), x.device(), launch.grid, launch.block,
                      launch.shared_bytes, norm, rows, n, launch.cached);
    });
}

void row_norm_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                       const Tensor& gx, const Tensor& gweight, const Tensor& gbias) {
    visit_real(g.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t rows = rstd.numel();
        const std::int64_t n = rows > 0            ? x.numel() / rows
                               : gweight.defined() ? gweight.numel()
                               : gbias.defined()   ? gbias.numel()
                                                   : 0;
        const bool wanted = gweight.defined() || gbias.defined();
        const std::int64_t strip = strip_rows(rows), strips = ceil_div(rows, strip);
        const Tensor partial = wanted ? Tensor::empty({strips, 2, n}, dtype_of<T>, g.device()) : Tensor();
        NormSlopes<T> slopes{g.data<T>(), x.data<T>(), data_or_null<T>(weight), data_or_null<T>(mean), rstd.data<T>(),
                             nullptr,     nullptr};
        if (gx.defined()) slopes.gx = gx.data<T>();
        if (wanted) slopes.partial = partial.data<T>();
        const std::size_t bytes = std::size_t(2 * n) * sizeof(T);
        const bool cached = wanted && bytes <= std::size_t(row_cache_bytes);
        const auto block = unsigned(std::clamp<std::int64_t>(ceil_div(n, 32) * 32, 32, row_threads));
        GRADUS_LAUNCH((norm_backward_kernel<T>), g.device(), unsigned(strips), block, cached ? bytes : 0, slopes, rows,
                      n, strip, cached);
        if (wanted)
            GRADUS_LAUNCH((norm_sums_kernel<T>), g.device(), unsigned(ceil_div(n, row_threads)), row_threads, 0,
                          partial.data<T>(), strips, n, gweight.defined() ? gweight.data<T>() : nullptr,
                          gbias.defined() ? gbias.data<T>() : nullptr);
    });
}

}  // namespace gradus::kernels::cuda
