#include "gradus/kernels/dropout_mask.h"
#include "gradus/kernels/norm.h"
#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cpu {

void residual_norm(const Tensor& x, const Tensor& residual, double p, const Draw& draw, const Tensor& weight,
                   const Tensor& bias, double eps, const Tensor& s, const Tensor& y, const Tensor& mean,
                   const Tensor& rstd) {
    const std::int64_t rows = rstd.numel();
    if (rows == 0) return;
    const DropoutMask mask(p, draw, x.numel());
    visit_real(x.dtype(), [&]<class T>(T) {
        T* const sum = s.data<T>();
        const NormRows<T> work{sum,
                               data_or_null<T>(weight),
                               data_or_null<T>(bias),
                               y.data<T>(),
                               mean.data<T>(),
                               rstd.data<T>(),
                               x.numel() / rows,
                               eps};
        const T *from = x.data<T>(), *beside = residual.data<T>();
        const auto add_up = [=](std::int64_t first, std::int64_t count) {
            for (std::int64_t i = first; i < first + count; ++i) sum[i] += beside[i];
        };
        const std::int64_t n = work.n;
        parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
            // A few rows at a time, so that one pass over memory serves the sum and the norm.
            for (std::int64_t first = begin; first < end; first += near_rows(n)) {
                const std::int64_t last = std::min(end, first + near_rows(n));
                if (p > 0)
                    mask.apply(from, sum, first * n, last * n, add_up);
                else
                    for (std::int64_t i = first * n; i < last * n; ++i) sum[i] = beside[i] + from[i];
                for (std::int64_t r = first; r < last; ++r) work.forward(r);
            }
        });
    });
}

void residual_norm_backward(const Tensor& g, const Tensor& s, const Tensor& weight, const Tensor& mean,
                            const Tensor& rstd, double p, const Draw& draw, const Tensor& gx, const Tensor& gresidual,
                            const Tensor& gweight, const Tensor& gbias) {
    const DropoutMask mask(p, draw, g.numel());
    visit_real(g.dtype(), [&]<class T>(T) {
        const std::int64_t rows = rstd.numel();
        T* const to = gx.defined() ? gx.data<T>() : nullptr;
        T* const slope = gresidual.defined() ? gresidual.data<T>() : to;  // dropped in place where nobody wants it
        const NormSlopes<T> slopes{g.data<T>(),
                                   s.data<T>(),
                                   data_or_null<T>(weight),
                                   mean.data<T>(),
                                   rstd.data<T>(),
                                   slope,
                                   norm_width(g, rows, gweight, gbias)};
        norm_backward(slopes, rows, gweight, gbias, [&](std::int64_t begin, std::int64_t end) {
            if (to) mask.apply(slope, to, begin * slopes.n, end * slopes.n);
        });
    });
}

}  // namespace gradus::kernels::cpu
