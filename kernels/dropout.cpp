#include "gradus/kernels/dropout_mask.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels::cpu {

void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y) {
    const DropoutMask mask(p, draw, x.numel());
    visit(x.dtype(), [&]<class T>(T) {
        if constexpr (is_floating(dtype_of<T>)) {
            const T* from = x.data<T>();
            T* to = y.data<T>();
            parallel_for(x.numel(), 64 * dropout_group,
                         [&](std::int64_t begin, std::int64_t end) { mask.apply(from, to, begin, end); });
        }
    });
}

}  // namespace gradus::kernels::cpu
