// Products: squares, the layers of a Transformer step (forward, dx, dW), batches of small ones, one row, other dtypes.
#include "bench.h"

namespace gradus::bench {
namespace {

enum Form { NN, NT, TN };
const char* const form_name[] = {"NN", "NT", "TN"};

void add_product(const std::string& name, Form form, std::int64_t m, std::int64_t n, std::int64_t k,
                 DType dtype = DType::f32) {
    add(name, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor a = form == TN ? transpose(numbers({k, m}, dtype)) : numbers({m, k}, dtype);
        const Tensor b = form == NT ? transpose(numbers({n, k}, dtype)) : numbers({k, n}, dtype);
        measure(state, {.flops = 2.0 * double(m) * double(n) * double(k), .f64 = dtype == DType::f64},
                [&] { matmul(a, b); });
    });
}

std::string size_name(std::int64_t m, std::int64_t n, std::int64_t k) {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}

const bool registered = [] {
    for (const std::int64_t size : {16, 64, 128, 256, 512, 1024, 2048})
        for (const Form form : {NN, NT, TN})
            add_product("matmul/square/" + std::to_string(size) + "/" + form_name[form], form, size, size, size);
    constexpr std::int64_t tokens = 3072;
    for (const auto& [out, in] :
         {std::pair<std::int64_t, std::int64_t>{256, 256}, {512, 256}, {256, 512}, {8000, 256}}) {
        add_product("matmul/layer/y/" + size_name(tokens, out, in), NT, tokens, out, in);
        add_product("matmul/layer/dx/" + size_name(tokens, in, out), NN, tokens, in, out);
        add_product("matmul/layer/dW/" + size_name(out, in, tokens), TN, out, in, tokens);
    }
    add_product("matmul/one_row/1x8000x256", NT, 1, 8000, 256);
    for (const DType dtype : {DType::f64, DType::bf16})
        add_product("matmul/" + to_string(dtype) + "/512", NN, 512, 512, 512, dtype);
    add("matmul/heads/1024x24x24x32", [](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor q = permute(numbers({128, 24, 8, 32}), {0, 2, 1, 3}),
                     k = permute(numbers({128, 24, 8, 32}), {0, 2, 3, 1});
        measure(state, {.flops = 2.0 * 1024 * 24 * 24 * 32}, [&] { matmul(q, k); });
    });
    // The feed-forward of a Transformer: one pass, and in two.
    for (const bool fused : {true, false})
        add(fused ? "linear_relu/3072x512x2048" : "linear_relu/composed/3072x512x2048",
            [fused](benchmark::State& state) {
                const NoGrad scope;
                const Tensor x = numbers({3072, 512}), w = numbers({2048, 512}), b = numbers({2048});
                measure(state, {.flops = 2.0 * 3072 * 512 * 2048},
                        [&] { return fused ? linear_relu(x, w, b) : relu(linear(x, w, b)); });
            });
    add("linear/forward_backward/3072x256x256", [](benchmark::State& state) {
        const Tensor x = numbers({128, 24, 256}), w = numbers({256, 256}), b = numbers({256});
        measure(state, {.flops = 6.0 * 3072 * 256 * 256}, forward_backward({x, w, b}, [=] { return linear(x, w, b); }));
    });
    return true;
}();

}  // namespace
}  // namespace gradus::bench
