// Running a formula over every element on a card: plain arrays 16 bytes at a time, anything else through its layout.
//
// A Formula has f(x) for an array of N lanes x of the type it computes in. 16-bit floats compute in f32, integers and
// bool in i64, as on the CPU. Bytes: each operand is read once and the result written once, so a kernel takes
// (N + 1) · bytes / bandwidth; a broadcast operand comes from the cache.
#pragma once

#include "gradus/kernels/convert.h"
#include "gradus/kernels/device.cuh"
#include "gradus/kernels/pointwise.h"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {

/// The type a formula computes in for results of this dtype.
inline DType compute_type(DType type) {
    if (!is_floating(type)) return DType::i64;
    return type == DType::f64 ? DType::f64 : DType::f32;
}

/// One operand of N: an array, or a number where `data` is null.
template <class C>
struct Input {
    const void* data;
    DType dtype;
    Walk walk;
    C number;

    Input() = default;
    Input(const Operand& operand, const Shape& shape)
        : data(operand.tensor ? operand.tensor->address() : nullptr),
          dtype(operand.tensor ? operand.tensor->dtype() : DType::f64),
          walk(operand.tensor ? Walk(operand.tensor->layout().expand("elementwise", shape)) : Walk()),
          number(convert_one<C>(operand.number)) {}
    __device__ C at(std::int64_t i) const { return data ? load_as<C>(dtype, data, walk.offset(i)) : number; }
};
template <class C, int N>
struct Inputs {
    Input<C> of[N];
};

template <class Formula, class C, class Out, int N>
__global__ void __launch_bounds__(256)
    strided_kernel(Inputs<C, N> in, void* y, DType dtype, Walk walk, std::int64_t n) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        C x[N];
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = in.of[k].at(i);
        store_as<Out>(dtype, y, walk.offset(i), Formula::f(x));
    }
}

/// Operands of one dtype, side by side with the result; a null array stands for the number.
template <class T, class C, int N>
struct Arrays {
    const T* data[N];
    C number[N];
};

// "At least one block" keeps ptxas from spilling a register or two for the next step of occupancy.
template <class Formula, class T, class C, int N>
__global__ void __launch_bounds__(256, 1) plain_kernel(Arrays<T, C, N> in, T* y, std::int64_t n) {
    constexpr int lanes = vector_lanes<T>;
    const std::int64_t vectors = n / lanes, step = std::int64_t(gridDim.x) * blockDim.x;
    const std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (std::int64_t v = first; v < vectors; v += step) {
        Vector<T> part[N], result;
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (in.data[k]) part[k] = load16(in.data[k] + v * lanes);
#pragma unroll
        for (int l = 0; l < lanes; ++l) {
            C x[N];
#pragma unroll
            for (int k = 0; k < N; ++k) x[k] = in.data[k] ? C(part[k].lane[l]) : in.number[k];
            result.lane[l] = T(Formula::f(x));
        }
        store16(y + v * lanes, result);
    }
    for (std::int64_t i = vectors * lanes + first; i < n; i += step) {
        C x[N];
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = in.data[k] ? C(in.data[k][i]) : in.number[k];
        y[i] = T(Formula::f(x));
    }
}

/// Tries the fast way: true when every operand is a number or a plain array of T that starts on 16 bytes, and so is y.
template <class Formula, class T, class C, int N>
bool run_plain(const Operand (&inputs)[N], const Tensor& y) {
    if (y.dtype() != dtype_of<T> || !y.is_contiguous() || !aligned16(y.address())) return false;
    Arrays<T, C, N> arrays{};
    for (int k = 0; k < N; ++k) {
        arrays.number[k] = convert_one<C>(inputs[k].number);
        const Tensor* x = inputs[k].tensor;
        if (!x) continue;
        if (x->dtype() != dtype_of<T> || x->shape() != y.shape() || !x->is_contiguous() || !aligned16(x->address()))
            return false;
        arrays.data[k] = x->template data<T>();
    }
    GRADUS_LAUNCH((plain_kernel<Formula, T, C, N>), y.device(), grid_for(y.numel(), 256 * vector_lanes<T>), 256, 0,
                  arrays, y.template data<T>(), y.numel());
    return true;
}

template <class Formula, class C, class Out, int N>
void run_strided(const Operand (&inputs)[N], const Tensor& y) {
    Inputs<C, N> in;
    for (int k = 0; k < N; ++k) in.of[k] = Input<C>(inputs[k], y.shape());
    GRADUS_LAUNCH((strided_kernel<Formula, C, Out, N>), y.device(), grid_for(y.numel(), 256), 256, 0, in, y.address(),
                  y.dtype(), Walk(y.layout()), y.numel());
}

/// y = formula(inputs) where both are of one class. `fast` leaves out the instances for plain arrays where they are not
/// worth the code.
template <class Formula, bool fast = true, bool integers = true, int N>
void run(const Operand (&inputs)[N], const Tensor& y) {
    if (y.numel() == 0) return;
    switch (compute_type(y.dtype())) {
        case DType::f32:
            if constexpr (fast)
                if (run_plain<Formula, float, float>(inputs, y) || run_plain<Formula, bfloat16, float>(inputs, y))
                    return;
            return run_strided<Formula, float, float>(inputs, y);
        case DType::f64:
            if constexpr (fast)
                if (run_plain<Formula, double, double>(inputs, y)) return;
            return run_strided<Formula, double, double>(inputs, y);
        default:
            if constexpr (integers) run_strided<Formula, std::int64_t, std::int64_t>(inputs, y);
    }
}

}  // namespace gradus::kernels::cuda
