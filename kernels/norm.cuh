// The norm of a row and its slopes on a card, whatever the rows are made of and whatever becomes of the slopes; see
// Note [Rows on a card].
#pragma once

#include "gradus/kernels/row.cuh"
#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cuda {

/// Where the rows of a norm come from: an array. Others make the elements when they are looked at first.
template <class T>
struct PlainRows {
    struct Row {
        const T* again;  ///< where elements lie once they were looked at
        template <int V>
        __device__ Vector<T, V> first(std::int64_t i) const {
            return load_part<V>(again + i);
        }
    };
    const T* x;
    __device__ Row row(std::int64_t start) const { return {x + start}; }
};

/// What a norm writes, and its parameters; weight, bias and mean may be null.
template <class T>
struct Norm {
    const T *weight, *bias;
    T *y, *mean, *rstd;
    double eps;
};

template <class T, int V, bool whole_block, class Rows>
__global__ void __launch_bounds__(row_threads)
    norm_kernel(Rows source, Norm<T> norm, std::int64_t rows, std::int64_t n, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, whole_block> group(scratch);
    const std::int64_t step = std::int64_t(gridDim.x) * group.count();
    for (std::int64_t r = std::int64_t(blockIdx.x) * group.count() + group.number(); r < rows; r += step) {
        const auto row = source.row(r * n);
        T *to = norm.y + r * n, *kept = cached ? cache + group.number() * n : nullptr;
        T sum = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> v = row.template first<V>(i);
            if (kept) store_part<V>(kept + i, v);
#pragma unroll
            for (int l = 0; l < V; ++l) sum += v.lane[l];
        });
        const T centre = norm.mean ? group.sum(sum) / T(n) : T(0);
        const T* again = kept ? kept : row.again;
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

/// Where the slopes of x go: an array. Others make more of them.
template <class T>
struct PlainSlopes {
    T* gx;  // null: not wanted
    __device__ bool wanted() const { return gx; }
    __device__ PlainSlopes row(std::int64_t start) const { return {gx + start}; }
    template <int V>
    __device__ void put(std::int64_t i, const Vector<T, V>& slope) const {
        store_part<V>(gx + i, slope);
    }
};

template <class T>
struct NormSlopes {
    const T *g, *x, *weight, *mean, *rstd;
    T* partial;  // (strips, 2, n): of weight and bias; null: not wanted
};

/// A block a strip of rows. Each thread keeps to its own columns, so the sums over the rows of a strip are its alone.
template <class T, int V, class Slopes>
__global__ void __launch_bounds__(row_threads) norm_backward_kernel(NormSlopes<T> s, Slopes slopes, std::int64_t rows,
                                                                    std::int64_t n, std::int64_t strip, bool cached) {
    GRADUS_SHARED(T, scratch, [64]);
    GRADUS_DYNAMIC_SHARED(T, cache);
    RowGroup<T, true> group(scratch);
    T* const sums = s.partial ? (cached ? cache : s.partial + std::int64_t(blockIdx.x) * 2 * n) : nullptr;
    if (sums)
        each_part<V>(group, n, [&](std::int64_t i) {
            store_part<V>(sums + i, Vector<T, V>{}), store_part<V>(sums + n + i, Vector<T, V>{});
        });
    const std::int64_t begin = std::int64_t(blockIdx.x) * strip, end = begin + strip < rows ? begin + strip : rows;
    for (std::int64_t r = begin; r < end; ++r) {
        const T *g = s.g + r * n, *x = s.x + r * n;
        const T centre = s.mean ? s.mean[r] : T(0), scale = s.rstd[r];
        T first = 0, second = 0;
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> slope = load_part<V>(g + i), from = load_part<V>(x + i);
            Vector<T, V> of_weight, of_bias;
            if (sums) of_weight = load_part<V>(sums + i), of_bias = load_part<V>(sums + n + i);
#pragma unroll
            for (int l = 0; l < V; ++l) {
                const T hat = (from.lane[l] - centre) * scale;
                if (sums) of_weight.lane[l] += slope.lane[l] * hat, of_bias.lane[l] += slope.lane[l];
                const T h = s.weight ? slope.lane[l] * s.weight[i + l] : slope.lane[l];
                first += h, second += h * hat;
            }
            if (sums) store_part<V>(sums + i, of_weight), store_part<V>(sums + n + i, of_bias);
        });
        first = group.sum(first), second = group.sum(second);
        if (!slopes.wanted()) continue;
        const auto row = slopes.row(r * n);
        const T m = s.mean ? first / T(n) : T(0), v = second / T(n);
        each_part<V>(group, n, [&](std::int64_t i) {
            const Vector<T, V> slope = load_part<V>(g + i), from = load_part<V>(x + i);
            Vector<T, V> out;
#pragma unroll
            for (int l = 0; l < V; ++l) {
                const T hat = (from.lane[l] - centre) * scale;
                const T h = s.weight ? slope.lane[l] * s.weight[i + l] : slope.lane[l];
                out.lane[l] = (h - m - hat * v) * scale;
            }
            row.template put<V>(i, out);
        });
    }
    if (sums && cached)
        each_part<V>(group, n, [&](std::int64_t i) {
            T* out = s.partial + std::int64_t(blockIdx.x) * 2 * n;
            store_part<V>(out + i, load_part<V>(sums + i)), store_part<V>(out + n + i, load_part<V>(sums + n + i));
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
inline std::int64_t strip_rows(std::int64_t rows) { return std::max<std::int64_t>(8, ceil_div(rows, 528)); }

/// All rows, a strip a block, V elements at a time, and the gradients of weight and bias where they are defined.
template <int V, class T, class Slopes>
void launch_norm_backward(NormSlopes<T> s, const Slopes& slopes, Device device, std::int64_t rows, std::int64_t n,
                          const Tensor& gweight, const Tensor& gbias) {
    const bool wanted = gweight.defined() || gbias.defined();
    const std::int64_t strip = strip_rows(rows), strips = ceil_div(rows, strip);
    const Tensor partial = wanted ? Tensor::empty({strips, 2, n}, dtype_of<T>, device) : Tensor();
    s.partial = wanted ? partial.data<T>() : nullptr;
    const std::size_t bytes = std::size_t(2 * n) * sizeof(T);
    const bool cached = wanted && bytes <= std::size_t(row_cache_bytes);
    const auto block = unsigned(std::clamp<std::int64_t>(ceil_div(n, 32 * V) * 32, 32, row_threads));
    GRADUS_LAUNCH((norm_backward_kernel<T, V, Slopes>), device, unsigned(strips), block, cached ? bytes : 0, s, slopes,
                  rows, n, strip, cached);
    if (wanted)
        GRADUS_LAUNCH((norm_sums_kernel<T>), device, unsigned(ceil_div(n, row_threads)), row_threads, 0,
                      partial.data<T>(), strips, n, gweight.defined() ? gweight.data<T>() : nullptr,
                      gbias.defined() ? gbias.data<T>() : nullptr);
}

}  // namespace gradus::kernels::cuda
