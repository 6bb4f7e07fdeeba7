// Layer norm of residual + dropout(x) on a card; see Note [Rows on a card]. Bytes an element (f32): 16 forward (x and
// the residual in, their sum and the result out), 16 backward with both slopes.
//
// The decisions are dropout's own: a thread draws a Philox block for its 16 bytes, or for each element where rows do
// not start on 16 bytes.
#include "gradus/kernels/dropout.cuh"
#include "gradus/kernels/norm.cuh"
#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cuda {
namespace {

std::int64_t sample_size(std::int64_t numel, const Draw& draw) {
    return numel / std::max<std::int64_t>(draw.samples, 1);
}

/// Do rows of n elements, and samples, fill 16 bytes at a time?
bool whole_vectors(std::int64_t n, std::int64_t numel, const Draw& draw, DType type) {
    const std::int64_t lanes = 16 / size_of(type);
    return n % lanes == 0 && sample_size(numel, draw) % lanes == 0;
}

/// Dropout of rows whose elements are cut into samples of `size`.
template <class T>
struct RowMask {
    Draw draw;
    Choice<T> choice;
    std::int64_t size;

    RowMask(double p, const Draw& drawn, std::int64_t numel)
        : draw(drawn), choice(p), size(sample_size(numel, drawn)) {}

    /// One row; the division is done once for it.
    struct Row {
        std::int64_t sample, first;  ///< where the row starts
        template <int V>
        __device__ Vector<T, V> apply(const RowMask& mask, const Vector<T, V>& from, std::int64_t i) const {
            std::int64_t at = first + i, within = sample;
            if (at >= mask.size) within += at / mask.size, at %= mask.size;  // samples need not be whole rows
            return mask.choice.apply(from, mask.draw, at, within);
        }
    };
    __device__ Row row(std::int64_t start) const {
        const std::int64_t sample = draw.samples > 1 ? start / size : 0;
        return {sample, start - sample * size};
    }
};

template <class T>
struct ResidualRows {
    const T *x, *residual;
    T* s;
    RowMask<T> mask;

    struct Row {
        const ResidualRows& all;
        std::int64_t start;
        typename RowMask<T>::Row mask;
        const T* again;
        template <int V>
        __device__ Vector<T, V> first(std::int64_t i) const {
            Vector<T, V> v = load_part<V>(all.x + start + i);
            const Vector<T, V> beside = load_part<V>(all.residual + start + i);
            if (all.mask.choice.threshold > 0) v = mask.apply(all.mask, v, i);
#pragma unroll
            for (int l = 0; l < V; ++l) v.lane[l] += beside.lane[l];
            store_part<V>(all.s + start + i, v);
            return v;
        }
    };
    __device__ Row row(std::int64_t start) const { return {*this, start, mask.row(start), s + start}; }
};

template <class T>
struct ResidualSlopes {
    T *gx, *gresidual;  // null: not wanted
    RowMask<T> mask;

    struct Row {
        const ResidualSlopes& all;
        std::int64_t start;
        typename RowMask<T>::Row mask;
        template <int V>
        __device__ void put(std::int64_t i, const Vector<T, V>& slope) const {
            if (all.gresidual) store_part<V>(all.gresidual + start + i, slope);
            if (all.gx) store_part<V>(all.gx + start + i, mask.apply(all.mask, slope, i));
        }
    };
    __device__ bool wanted() const { return gx || gresidual; }
    __device__ Row row(std::int64_t start) const { return {*this, start, mask.row(start)}; }
};

}  // namespace

void residual_norm(const Tensor& x, const Tensor& residual, double p, const Draw& draw, const Tensor& weight,
                   const Tensor& bias, double eps, const Tensor& s, const Tensor& y, const Tensor& mean,
                   const Tensor& rstd) {
    const std::int64_t rows = rstd.numel();
    if (rows == 0) return;
    const std::int64_t n = x.numel() / rows;
    const RowLaunch launch(rows, n, size_of(x.dtype()), 1);
    const bool aligned = whole_vectors(n, x.numel(), draw, x.dtype()) && aligned16(x.address()) &&
                         aligned16(residual.address()) && aligned16(s.address()) && aligned16(y.address());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        const ResidualRows<T> source{x.data<T>(), residual.data<T>(), s.data<T>(), RowMask<T>(p, draw, x.numel())};
        const Norm<T> norm{data_or_null<T>(weight), data_or_null<T>(bias), y.data<T>(),
                           mean.data<T>(),          rstd.data<T>(),        eps};
        GRADUS_LAUNCH((norm_kernel<T, lanes.value, whole.value, ResidualRows<T>>), x.device(), launch.grid,
                      launch.block, launch.shared_bytes, source, norm, rows, n, launch.cached);
    });
}

void residual_norm_backward(const Tensor& g, const Tensor& s, const Tensor& weight, const Tensor& mean,
                            const Tensor& rstd, double p, const Draw& draw, const Tensor& gx, const Tensor& gresidual,
                            const Tensor& gweight, const Tensor& gbias) {
    visit_real(g.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t rows = rstd.numel(), n = norm_width(g, rows, gweight, gbias);
        const ResidualSlopes<T> slopes{gx.defined() ? gx.data<T>() : nullptr,
                                       gresidual.defined() ? gresidual.data<T>() : nullptr,
                                       RowMask<T>(p, draw, g.numel())};
        const NormSlopes<T> read{g.data<T>(),    s.data<T>(),    data_or_null<T>(weight),
                                 mean.data<T>(), rstd.data<T>(), nullptr};
        if (whole_vectors(n, g.numel(), draw, g.dtype()) &&
            rows_aligned<T>(n, read.g, read.x, slopes.gx, slopes.gresidual))
            launch_norm_backward<vector_lanes<T>>(read, slopes, g.device(), rows, n, gweight, gbias);
        else
            launch_norm_backward<1>(read, slopes, g.device(), rows, n, gweight, gbias);
    });
}

}  // namespace gradus::kernels::cuda
