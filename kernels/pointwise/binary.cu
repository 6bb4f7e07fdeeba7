// Ops of two operands, comparisons, selection, and the search for what is not finite.
#include <tuple>

#include "gradus/kernels/memory.h"
#include "gradus/kernels/pointwise/pointwise.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class Op>
struct Binary {
    template <class C>
    GRADUS_FN static C f(const C* x) {
        return Op::f(x[0], x[1]);
    }
};
template <class Op>
struct Compare {
    template <class C>
    GRADUS_FN static bool f(const C* x) {
        return Op::f(x[0], x[1]);
    }
};
struct Where {
    template <class C>
    GRADUS_FN static C f(const C* x) {
        return x[0] != C(0) ? x[1] : x[2];
    }
};

}  // namespace

template <class Op>
void binary(Operand a, Operand b, const Tensor& y) {
    const Operand inputs[] = {a, b};
    run<Binary<Op>, true, !std::is_same_v<Op, pointwise::Div>>(inputs, y);
}

template <class Op>
void compare(Operand a, Operand b, DType as, const Tensor& y) {
    if (y.numel() == 0) return;
    const Operand inputs[] = {a, b};
    switch (compute_type(as)) {
        case DType::f32:
            return run_strided<Compare<Op>, float, bool>(inputs, y);
        case DType::f64:
            return run_strided<Compare<Op>, double, bool>(inputs, y);
        default:
            return run_strided<Compare<Op>, std::int64_t, bool>(inputs, y);
    }
}

void where(const Tensor& condition, Operand a, Operand b, const Tensor& y) {
    const Operand inputs[] = {condition, a, b};
    run<Where, false>(inputs, y);
}

namespace {

__global__ void finite_kernel(const void* x, DType dtype, Walk walk, std::int64_t n, std::int32_t* found) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    bool bad = false;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const double value = load_as<double>(dtype, x, walk.offset(i));
        bad |= !(value - value == 0);  // inf - inf and NaN are no 0
    }
    if (__any_sync(all_lanes, bad) && (threadIdx.x & 31) == 0) atomicOr(found, 1);
}

}  // namespace

bool all_finite(const Tensor& x) {
    if (!is_floating(x.dtype()) || x.numel() == 0) return true;
    const Tensor found = Tensor::empty({1}, DType::i32, x.device());
    fill(found, 0);
    GRADUS_LAUNCH(finite_kernel, x.device(), grid_for(x.numel(), 256 * 8), 256, 0, x.address(), x.dtype(),
                  Walk(x.layout()), x.numel(), found.data<std::int32_t>());
    return found.item<int>() == 0;
}

namespace {

template <class... Ops>
auto emit_binary(pointwise::List<Ops...>) {
    return std::tuple{&binary<Ops>...};
}
template <class... Ops>
auto emit_compare(pointwise::List<Ops...>) {
    return std::tuple{&compare<Ops>...};
}
[[gnu::used]] const auto emitted =
    std::tuple{emit_binary(pointwise::BinaryOps()), emit_compare(pointwise::CompareOps())};

}  // namespace
}  // namespace gradus::kernels::cuda
