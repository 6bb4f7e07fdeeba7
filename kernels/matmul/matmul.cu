// Which rung multiplies, and the products that ops call.
#include "gradus/kernels/matmul.h"

#include "gradus/kernels/matmul/cublas.h"
#include "gradus/kernels/matmul/product.cuh"
#include "gradus/kernels/memory.h"

namespace gradus::kernels::cuda {
namespace {

/// The batch axes of an operand, as a walk over the matrices.
Walk batch_of(const Layout& layout) {
    Layout batch;
    for (int i = 0; i < layout.rank() - 2; ++i)
        batch.shape.push_back(layout.shape[i]), batch.strides.push_back(layout.strides[i]);
    return Walk(batch);
}

template <class T>
Side<T> side(const Tensor& x, int r_axis, int k_axis) {
    return {x.data<T>(), x.strides()[x.rank() + r_axis], x.strides()[x.rank() + k_axis], batch_of(x.layout())};
}

}  // namespace

/// A multiprocessor works on one tile of 128 or three of 64 at a time. A large tile reads memory less often, a small
/// one leaves fewer multiprocessors idle; where even small tiles are fewer than two for each, k is cut.
Choice choose(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
    constexpr std::int64_t multiprocessors = 132;  // an H200; the choice must not depend on the card that runs it
    if (!is_floating(dtype)) return {Rung::tiled, 1};
    if (m <= 16 && n <= 16 && k <= 64) return {Rung::tiled, 1};
    const auto tiles = [&](std::int64_t size) { return batch * ceil_div(m, size) * ceil_div(n, size); };
    if (dtype != DType::f64 && m >= 128 && n >= 128 && tiles(128) >= multiprocessors) return {Rung::register_128, 1};
    const std::int64_t count = tiles(64), wanted = ceil_div(2 * multiprocessors, count);
    const std::int64_t most = k / 256;  // a part shorter than that is not worth its pass over the partial sums
    return {Rung::register_64, int(std::clamp<std::int64_t>(std::min(wanted, most), 1, 32))};
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& y, bool accumulate, Choice choice,
              Epilogue epilogue) {
    if (y.numel() == 0) return;
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, bool>) {
            fail("matmul: has no product of ", y.dtype());
        } else {
            Product<T> p{side<T>(a, -2, -1), side<T>(b, -1, -2),
                         y.data<T>(),        bias.defined() ? bias.data<T>() : nullptr,
                         y.size(-2),         y.size(-1),
                         a.size(-1),         1,
                         accumulate,         epilogue == Epilogue::relu};
            p.batch = y.numel() / (p.m * p.n);
            p.parts = choice.parts;
            Tensor workspace;
            if (p.parts > 1) {
                using A = Accumulator<T>;
                workspace =
                    Tensor::empty({std::int64_t(p.parts) * y.numel() * std::int64_t(sizeof(A))}, DType::u8, y.device());
                p.workspace = static_cast<A*>(workspace.address());
            }
            const Device device = y.device();
            if (choice.rung == Rung::naive)
                multiply_naive(p, device);
            else if (choice.rung == Rung::tiled)
                multiply_tiled(p, device);
            else if constexpr (!std::is_integral_v<T>)
                multiply_registers(p, choice.rung, device);
            else
                multiply_tiled(p, device);
            if (p.parts > 1) join_parts(p, device);
        }
    });
}

void matmul(const Tensor& a, const Tensor& b, const Tensor& y, bool accumulate) {
    const std::int64_t m = y.size(-2), n = y.size(-1);
    if (y.numel() == 0) return;
    if (matmul_backend() == MatmulBackend::cublas && multiply_by_cublas(a, b, {}, y, accumulate, Epilogue::none))
        return;
    multiply(a, b, {}, y, accumulate, choose(y.numel() / (m * n), m, n, a.size(-1), y.dtype()));
}

void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, const Tensor& y) {
    if (y.numel() == 0) return;
    const Tensor transposed = weight.with_layout(weight.layout().permute({1, 0}));
    if (matmul_backend() == MatmulBackend::cublas && multiply_by_cublas(x, transposed, bias, y, false, epilogue))
        return;
    Tensor row = bias;
    if (bias.defined() && !bias.is_contiguous()) {
        row = Tensor::empty(bias.shape(), bias.dtype(), bias.device());
        copy(bias, row);
    }
    multiply(x, transposed, row, y, false, choose(1, y.size(-2), y.size(-1), x.size(-1), y.dtype()), epilogue);
}

}  // namespace gradus::kernels::cuda
