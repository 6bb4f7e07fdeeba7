#include "gradus/kernels/norm.h"

#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cpu {

void row_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centred, const Tensor& y,
              const Tensor& mean, const Tensor& rstd) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const std::int64_t rows = rstd.numel();
        if (rows == 0) return;
        NormRows<T> work{x.data<T>(), data_or_null<T>(weight), data_or_null<T>(bias), y.data<T>(),
                         nullptr,     rstd.data<T>(),          x.numel() / rows,      eps};
        if (centred) work.mean = mean.data<T>();
        parallel_for(rows, row_grain(work.n), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r) work.forward(r);
        });
    });
}

void row_norm_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                       const Tensor& gx, const Tensor& gweight, const Tensor& gbias) {
    visit_real(g.dtype(), [&]<class T>(T) {
        const std::int64_t rows = rstd.numel();
        NormSlopes<T> slopes{g.data<T>(),
                             x.data<T>(),
                             data_or_null<T>(weight),
                             data_or_null<T>(mean),
                             rstd.data<T>(),
                             nullptr,
                             norm_width(x, rows, gweight, gbias)};
        if (gx.defined()) slopes.gx = gx.data<T>();
        norm_backward(slopes, rows, gweight, gbias, [](std::int64_t, std::int64_t) {});
    });
}

}  // namespace gradus::kernels::cpu
