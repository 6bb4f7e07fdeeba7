// The ladder of products on a card, each rung beside cuBLAS: cuda/matmul/<rung>/<dtype>/<m>x<n>x<k>.
#ifdef GRADUS_HAS_CUDA
#include "card.h"
#include "gradus/kernels/matmul/cublas.h"
#include "gradus/kernels/matmul/rung.h"

namespace gradus::bench {
namespace {

using kernels::cuda::Choice;
using kernels::cuda::MatmulBackend;
using kernels::cuda::MatmulBackendScope;
using kernels::cuda::Rung;

struct Sizes {
    std::int64_t batch, m, n, k;
    std::string text() const {
        return (batch > 1 ? std::to_string(batch) + "x" : std::string()) + std::to_string(m) + "x" + std::to_string(n) +
               "x" + std::to_string(k);
    }
    double flops() const { return 2.0 * double(batch) * double(m) * double(n) * double(k); }
    Shape left() const { return batch > 1 ? Shape{batch, m, k} : Shape{m, k}; }
    Shape right() const { return batch > 1 ? Shape{batch, k, n} : Shape{k, n}; }
    Shape result() const { return batch > 1 ? Shape{batch, m, n} : Shape{m, n}; }
};

void add_rung(const char* name, Rung rung, const Sizes& s, DType type) {
    add_on_card("cuda/matmul/" + std::string(name) + "/" + to_string(type) + "/" + s.text(),
                [=](benchmark::State& state) {
                    const Tensor a = card_numbers(s.left(), type), b = card_numbers(s.right(), type),
                                 y = Tensor::empty(s.result(), type, bench_card);
                    measure_on_card(state, {.flops = s.flops()}, [&] {
                        kernels::cuda::multiply(a, b, {}, y, false, Choice{rung, 1});
                    });
                });
}

/// What an op runs: the rung and the parts that choose() picks, or cuBLAS.
void add_backend(const char* name, MatmulBackend backend, const Sizes& s, DType type) {
    add_on_card("cuda/matmul/" + std::string(name) + "/" + to_string(type) + "/" + s.text(),
                [=](benchmark::State& state) {
                    const MatmulBackendScope scope(backend);
                    const NoGrad no_grad;
                    const Tensor a = card_numbers(s.left(), type), b = card_numbers(s.right(), type);
                    measure_on_card(state, {.flops = s.flops()}, [&] { matmul(a, b); });
                });
}

const bool registered = [] {
    const Sizes sizes[] = {{1, 512, 512, 512},  {1, 1024, 1024, 1024}, {1, 2048, 2048, 2048}, {1, 4096, 4096, 4096},
                           {1, 3072, 512, 512}, {1, 3072, 2048, 512},  {1, 3072, 8000, 512},  {128, 128, 128, 64}};
    for (const DType type : {DType::f32, DType::f64, DType::bf16})
        for (const Sizes& s : sizes) {
            if (type == DType::f32 && s.m <= 2048) add_rung("naive", Rung::naive, s, type);
            if (type == DType::f32) add_rung("tiled", Rung::tiled, s, type);
            add_rung("register_64", Rung::register_64, s, type);
            if (type != DType::f64) add_rung("register_128", Rung::register_128, s, type);
            add_backend("own", MatmulBackend::own, s, type);
            add_backend("cublas", MatmulBackend::cublas, s, type);
        }
    return true;
}();

}  // namespace
}  // namespace gradus::bench
#endif
