// Layer norm and RMS norm on a card; see Note [Rows on a card]. Bytes an element (f32): 8 forward, 12 backward; the
// gradients of weight and bias are added up in the same pass, strip by strip of rows, and then over the strips.
#include "gradus/kernels/norm.cuh"

#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cuda {

void row_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centred, const Tensor& y,
              const Tensor& mean, const Tensor& rstd) {
    const std::int64_t rows = rstd.numel();
    if (rows == 0) return;
    const std::int64_t n = x.numel() / rows;
    const RowLaunch launch(rows, n, size_of(x.dtype()), 1);
    const bool aligned = (n * size_of(x.dtype())) % 16 == 0 && aligned16(x.address()) && aligned16(y.address());
    visit_rows(x.dtype(), aligned, launch.whole_block, [&](auto zero, auto lanes, auto whole) {
        using T = decltype(zero);
        const Norm<T> norm{data_or_null<T>(weight),
                           data_or_null<T>(bias),
                           y.data<T>(),
                           centred ? mean.data<T>() : nullptr,
                           rstd.data<T>(),
                           eps};
        GRADUS_LAUNCH((norm_kernel<T, lanes.value, whole.value, PlainRows<T>>), x.device(), launch.grid, launch.block,
                      launch.shared_bytes, PlainRows<T>{x.data<T>()}, norm, rows, n, launch.cached);
    });
}

void row_norm_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                       const Tensor& gx, const Tensor& gweight, const Tensor& gbias) {
    visit_real(g.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t rows = rstd.numel();
        const NormSlopes<T> s{g.data<T>(),           x.data<T>(),    data_or_null<T>(weight),
                              data_or_null<T>(mean), rstd.data<T>(), nullptr};
        const PlainSlopes<T> slopes{gx.defined() ? gx.data<T>() : nullptr};
        const std::int64_t n = norm_width(x, rows, gweight, gbias);
        if (rows_aligned<T>(n, s.g, s.x, slopes.gx))
            launch_norm_backward<vector_lanes<T>>(s, slopes, g.device(), rows, n, gweight, gbias);
        else
            launch_norm_backward<1>(s, slopes, g.device(), rows, n, gweight, gbias);
    });
}

}  // namespace gradus::kernels::cuda
