// Optimizer updates and gradient sums on a card: one pass each.
//
// Bytes a parameter (f32): SGD 12, with momentum 20; Adam 28 (p, m, v read and written, g read). Both wait for memory:
// 63 million parameters take 0.41 ms at 4.3 TB/s with Adam.
#include "gradus/kernels/update.h"

#include <cmath>

#include "gradus/kernels/device.cuh"
#include "gradus/kernels/update_checks.h"

namespace gradus::kernels::cuda {
namespace {

/// An optimizer's numbers in the type it computes in.
template <class W>
struct SgdNumbers {
    W lr, momentum, fresh, decay, scale;
    bool first, nesterov;

    explicit SgdNumbers(const SgdStep& s)
        : lr(W(s.lr)),
          momentum(W(s.momentum)),
          fresh(W(1 - s.dampening)),
          decay(W(s.weight_decay)),
          scale(W(s.gradient_scale)),
          first(s.first),
          nesterov(s.nesterov) {}
};

template <class T>
__global__ void __launch_bounds__(256)
    sgd_kernel(T* p, const T* gradient, Wide<T>* buffer, std::int64_t n, SgdNumbers<Wide<T>> s) {
    using W = Wide<T>;
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const W x = W(p[i]), g = W(gradient[i]) * s.scale + s.decay * x;
        W direction = g;
        if (buffer) {
            const W b = s.first ? g : s.momentum * buffer[i] + s.fresh * g;
            buffer[i] = b;
            direction = s.nesterov ? g + s.momentum * b : b;
        }
        p[i] = T(x - s.lr * direction);
    }
}

template <class W>
struct AdamNumbers {
    W size, root, eps, beta1, fresh1, beta2, fresh2, keep, decay, scale;

    explicit AdamNumbers(const AdamStep& s)
        : size(W(s.lr / (1 - std::pow(s.beta1, double(s.t))))),
          root(W(1 / std::sqrt(1 - std::pow(s.beta2, double(s.t))))),
          eps(W(s.eps)),
          beta1(W(s.beta1)),
          fresh1(W(1 - s.beta1)),
          beta2(W(s.beta2)),
          fresh2(W(1 - s.beta2)),
          keep(W(s.decoupled ? 1 - s.lr * s.weight_decay : 1)),
          decay(W(s.decoupled ? 0 : s.weight_decay)),
          scale(W(s.gradient_scale)) {}
    __device__ W updated(W x, W gradient, W& mean, W& square) const {
        const W g = gradient * scale + decay * x;
        mean = beta1 * mean + fresh1 * g, square = beta2 * square + fresh2 * (g * g);
        return x * keep - size * (mean / (math::sqrt(square) * root + eps));
    }
};

template <class T>
__global__ void __launch_bounds__(256)
    adam_kernel(T* p, const T* gradient, Wide<T>* mean, Wide<T>* square, std::int64_t n, AdamNumbers<Wide<T>> s) {
    using W = Wide<T>;
    constexpr int lanes = vector_lanes<W>;
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x, vectors = n / lanes;
    const std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (std::int64_t v = first; v < vectors; v += step) {  // arrays of the pool start on 64 bytes
        auto x = *reinterpret_cast<Vector<T, lanes>*>(p + v * lanes);
        const auto g = *reinterpret_cast<const Vector<T, lanes>*>(gradient + v * lanes);
        auto m = load16(mean + v * lanes), q = load16(square + v * lanes);
#pragma unroll
        for (int l = 0; l < lanes; ++l) x.lane[l] = T(s.updated(W(x.lane[l]), W(g.lane[l]), m.lane[l], q.lane[l]));
        *reinterpret_cast<Vector<T, lanes>*>(p + v * lanes) = x;
        store16(mean + v * lanes, m);
        store16(square + v * lanes, q);
    }
    for (std::int64_t i = vectors * lanes + first; i < n; i += step)
        p[i] = T(s.updated(W(p[i]), W(gradient[i]), mean[i], square[i]));
}

/// The same where an array does not start on 16 bytes.
template <class T>
__global__ void __launch_bounds__(256) adam_element_kernel(T* p, const T* gradient, Wide<T>* mean, Wide<T>* square,
                                                           std::int64_t n, AdamNumbers<Wide<T>> s) {
    using W = Wide<T>;
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        p[i] = T(s.updated(W(p[i]), W(gradient[i]), mean[i], square[i]));
}

constexpr int sum_threads = 256;
constexpr std::int64_t sum_block = 16384;  // elements a block adds up: part of the result

template <class T>
__global__ void __launch_bounds__(sum_threads) squares_kernel(const T* x, std::int64_t n, double* partial) {
    GRADUS_SHARED(double, scratch, [32]);
    const std::int64_t begin = std::int64_t(blockIdx.x) * sum_block;
    const std::int64_t end = begin + sum_block < n ? begin + sum_block : n;
    double sum = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += sum_threads) {
        const double value = double(Wide<T>(x[i]));
        sum += value * value;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
__global__ void __launch_bounds__(sum_threads) total_kernel(const double* partial, std::int64_t n, double* total) {
    GRADUS_SHARED(double, scratch, [32]);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += sum_threads) sum += partial[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *total = sum;
}

template <class T>
__global__ void __launch_bounds__(256) scale_kernel(T* x, Wide<T> factor, std::int64_t n) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = T(Wide<T>(x[i]) * factor);
}
template <class T>
__global__ void __launch_bounds__(256) clamp_kernel(T* x, Wide<T> low, Wide<T> high, std::int64_t n) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const Wide<T> value = Wide<T>(x[i]);
        x[i] = T(value < low ? low : value > high ? high : value);
    }
}

}  // namespace

void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& buffer, const SgdStep& step) {
    check_operand("sgd", "gradient", parameter, gradient, parameter.dtype());
    if (buffer.defined()) check_operand("sgd", "momentum buffer", parameter, buffer, state_dtype(parameter.dtype()));
    visit_floating("sgd", parameter, [&](auto zero) {
        using T = decltype(zero);
        using W = Wide<T>;
        const std::int64_t n = parameter.numel();
        GRADUS_LAUNCH((sgd_kernel<T>), parameter.device(), grid_for(n, 256), 256, 0, parameter.data<T>(),
                      gradient.data<T>(), buffer.defined() ? buffer.data<W>() : nullptr, n, SgdNumbers<W>(step));
    });
    parameter.storage().bump_version();
    if (buffer.defined()) buffer.storage().bump_version();
}

void adam(const Tensor& parameter, const Tensor& gradient, const Tensor& mean, const Tensor& square,
          const AdamStep& step) {
    check_operand("adam", "gradient", parameter, gradient, parameter.dtype());
    check_operand("adam", "mean", parameter, mean, state_dtype(parameter.dtype()));
    check_operand("adam", "mean square", parameter, square, state_dtype(parameter.dtype()));
    check(step.t >= 1, "adam: steps count from 1: got ", step.t);
    visit_floating("adam", parameter, [&](auto zero) {
        using T = decltype(zero);
        using W = Wide<T>;
        const std::int64_t n = parameter.numel();
        const bool aligned = aligned16(parameter.address()) && aligned16(gradient.address()) &&
                             aligned16(mean.address()) && aligned16(square.address());
        if (aligned)
            GRADUS_LAUNCH((adam_kernel<T>), parameter.device(), grid_for(n, 256 * vector_lanes<W>), 256, 0,
                          parameter.data<T>(), gradient.data<T>(), mean.data<W>(), square.data<W>(), n,
                          AdamNumbers<W>(step));
        else
            GRADUS_LAUNCH((adam_element_kernel<T>), parameter.device(), grid_for(n, 256), 256, 0, parameter.data<T>(),
                          gradient.data<T>(), mean.data<W>(), square.data<W>(), n, AdamNumbers<W>(step));
    });
    parameter.storage().bump_version();
    mean.storage().bump_version();
    square.storage().bump_version();
}

double sum_of_squares(const Tensor& x) {
    const std::int64_t n = x.numel(), blocks = ceil_div(n, sum_block);
    if (n == 0) return 0;
    const Tensor partial = Tensor::empty({blocks + 1}, DType::f64, x.device());
    double* sums = partial.data<double>();
    visit_floating("sum_of_squares", x, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((squares_kernel<T>), x.device(), unsigned(blocks), sum_threads, 0, x.data<T>(), n, sums + 1);
    });
    GRADUS_LAUNCH(total_kernel, x.device(), 1, sum_threads, 0, sums + 1, blocks, sums);
    return partial.with_layout(Layout(Shape{})).item();
}

void scale_in_place(const Tensor& x, double factor) {
    visit_floating("scale_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((scale_kernel<T>), x.device(), grid_for(x.numel(), 256), 256, 0, x.data<T>(), Wide<T>(factor),
                      x.numel());
    });
    x.storage().bump_version();
}

void clamp_in_place(const Tensor& x, double low, double high) {
    visit_floating("clamp_in_place", x, [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((clamp_kernel<T>), x.device(), grid_for(x.numel(), 256), 256, 0, x.data<T>(), Wide<T>(low),
                      Wide<T>(high), x.numel());
    });
    x.storage().bump_version();
}

}  // namespace gradus::kernels::cuda
