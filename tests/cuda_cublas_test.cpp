// The switch to cuBLAS: the same products by another library (on emulated cards by its double).
#include <thread>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/stream.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cublas.h"
#include "gradus/kernels/matmul/cublas.h"
#ifdef GRADUS_EMULATED
#include "gradus/core/emulation/blas.h"
#endif

namespace gradus::tests {
namespace {

using kernels::cuda::MatmulBackend;
using kernels::cuda::MatmulBackendScope;

Tensor numbers(const Shape& shape, std::uint64_t salt, DType type = DType::f32) {
    Generator rng(salt);
    return cast(uniform(shape, -1, 1, DType::f32, Device{}, &rng), type);
}

/// f on the last card by cuBLAS equals f on the CPU.
template <class F>
void same(const Tensor& a, const Tensor& b, std::int64_t length, const F& f) {
    const NoGrad scope;
    const Tensor here = f(a, b);
    const Tensor there = f(to(a, last_card()), to(b, last_card()));
    CHECK(differs(there, here.to_vector<double>(), tolerance(here.dtype(), length)) == "");
}

TEST_CASE("products by cuBLAS: every transposition, size and dtype", "[cuda][matmul][cublas]") {
    if (!have_cards(1)) return;
    const MatmulBackendScope backend(MatmulBackend::cublas);
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32})
        for (const auto& [m, n, k] :
             {std::tuple{1, 1, 1}, {3, 5, 4}, {17, 1, 33}, {1, 19, 7}, {33, 31, 1}, {0, 3, 2}, {3, 4, 0}})
            for (const bool across : {false, true})
                for (const bool down : {false, true}) {
                    INFO(to_string(type) << " " << m << " x " << n << " x " << k << ", transposed " << across << down);
                    const Tensor a = mul(numbers(across ? Shape{k, m} : Shape{m, k}, 1), 4.0),
                                 b = mul(numbers(down ? Shape{n, k} : Shape{k, n}, 2), 4.0);
                    same(cast(a, type), cast(b, type), k, [&](const Tensor& x, const Tensor& y) {
                        return matmul(across ? transpose(x) : x, down ? transpose(y) : y);
                    });
                }
}

TEST_CASE("products by cuBLAS of batches, broadcast, sliced and reversed operands", "[cuda][matmul][cublas]") {
    if (!have_cards(1)) return;
    const MatmulBackendScope backend(MatmulBackend::cublas);
    const auto product = [](const Tensor& x, const Tensor& y) { return matmul(x, y); };
    same(numbers({4, 3, 5, 7}, 1), numbers({4, 3, 7, 2}, 2), 7, product);
    same(numbers({4, 3, 5, 7}, 1), numbers({7, 2}, 2), 7, product);     // one right operand for all
    same(numbers({4, 3, 5, 7}, 1), numbers({3, 7, 2}, 2), 7, product);  // no single step from matrix to matrix
    same(numbers({5, 7}, 1), numbers({2, 1, 7, 2}, 2), 7, product);
    same(numbers({6, 5, 8}, 1), numbers({6, 9, 7}, 2), 7, [](const Tensor& x, const Tensor& y) {
        return matmul(slice(x, 2, 1, 8), transpose(slice(y, 1, 2, 9, 3), 1, 2));
    });
    same(numbers({5, 14}, 1), numbers({7, 3}, 2), 7, [](const Tensor& x, const Tensor& y) {
        return matmul(slice(x, 1, 0, 14, 2), flip(y, {0}));  // neither rows nor columns lie in order
    });
    same(permute(numbers({3, 4, 5, 6}, 1), {0, 2, 1, 3}), permute(numbers({3, 4, 5, 6}, 2), {0, 2, 3, 1}), 6, product);
}

TEST_CASE("linear by cuBLAS: bias, relu, gradients, and no old NaN", "[cuda][matmul][cublas]") {
    if (!have_cards(1)) return;
    const MatmulBackendScope backend(MatmulBackend::cublas);
    for (const bool relu : {false, true}) {
        const auto results = [&](Device device) {
            const Tensor x = require_grad(to(numbers({2, 5, 7}, 1), device)),
                         w = require_grad(to(numbers({6, 7}, 2), device)),
                         b = require_grad(to(slice(numbers({12}, 3), 0, 0, 12, 2), device));
            const Tensor y = (relu ? linear_relu : linear)(x, w, b);
            std::vector<Tensor> all = gradients(y, {x, w, b}, {}, to(numbers(y.shape(), 4), device));
            all.push_back(y);
            return all;
        };
        const auto there = results(last_card()), here = results(Device{});
        for (std::size_t i = 0; i < here.size(); ++i)
            CHECK(differs(there[i], here[i].to_vector<double>(), gradient_tolerance(DType::f32, 10)) == "");
    }
    {
        const Tensor old = full({5, 6}, NAN, DType::f32, card(0));  // whose memory comes again
    }
    CHECK(sum(is_finite(matmul(to(numbers({5, 3}, 1), card(0)), to(numbers({3, 6}, 2), card(0))))).item() == 30);
}

TEST_CASE("BB-148 threads with streams of their own multiply by cuBLAS at once", "[cuda][matmul][cublas]") {
    if (!have_cards(1)) return;
    const MatmulBackendScope backend(MatmulBackend::cublas);
    const Tensor w = numbers({24, 24}, 1);
    std::vector<double> found[3];
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            const NoGrad no_grad;
            const StreamGuard guard{Stream(last_card())};
            const Tensor there = to(w, last_card());
            Tensor x = mul(there, double(t + 1));
            for (int i = 0; i < 10; ++i) x = matmul(x, there);
            found[t] = x.to_vector<double>();
        });
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < 3; ++t) {
        const NoGrad no_grad;
        Tensor x = mul(w, double(t + 1));
        for (int i = 0; i < 10; ++i) x = matmul(x, w);
        double size = 0;
        for (const double v : x.to_vector<double>()) size = std::max(size, std::abs(v));
        CHECK(differs(found[t], x.to_vector<double>(), Tolerance{1e-4, 1e-5 * size}) == "");
    }
}

#ifdef GRADUS_EMULATED
TEST_CASE("a leading dimension that is too small is cuBLAS's error, told with its number", "[cuda][cublas]") {
    if (!have_cards(1)) return;
    const Tensor x = ones({4, 4}, DType::f32, card(0)), y = zeros({4, 4}, DType::f32, card(0));
    BlasProduct p{DType::f32,  4, 4,  4,    1, {x.address(), false, 4, 0}, {x.address(), false, 3, 0},
                  y.address(), 4, 16, false};
    CHECK(error_of([&] { blas_product(card(0), p); }) == "cublas: cublasGemmStridedBatchedEx failed with the status 7");
    p.b.leading = 4;
    blas_product(card(0), p);
    CHECK(y.to_vector<float>() == std::vector<float>(16, 4));
    p.dtype = DType::i32;
    CHECK(error_of([&] { blas_product(card(0), p); }) == "cublas: has no product of i32");
}
#endif

}  // namespace
}  // namespace gradus::tests
#endif
