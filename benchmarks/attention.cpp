// Fused attention: short sentences in large batches, and longer sequences.
#include "bench.h"

namespace gradus::bench {
namespace {

void add_attention(const std::string& name, const Shape& shape, bool causal, double dropout) {
    const double pairs = double(shape[0] * shape[1] * shape[2] * shape[2]), width = double(shape[3]);
    // Two products forward (scores, values), five backward (scores again, dV, dP, dQ, dK); causal ones need half of
    // them.
    const double product = 2 * pairs * width * (causal ? 0.5 : 1);
    const auto inputs = [=] {
        std::vector<Tensor> qkv;
        for (int i = 0; i < 3; ++i)  // as they come from the projections: (B, T, H, D) seen as (B, H, T, D)
            qkv.push_back(permute(numbers({shape[0], shape[2], shape[1], shape[3]}), {0, 2, 1, 3}));
        return qkv;
    };
    const auto call = [=](const std::vector<Tensor>& x) {
        AttentionOptions options;
        options.causal = causal, options.dropout = dropout;
        return scaled_dot_product_attention(x[0], x[1], x[2], options);
    };
    add("attention/" + name, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const auto x = inputs();
        measure(state, {.flops = 2 * product}, [&] { call(x); });
    });
    add("attention/forward_backward/" + name, [=](benchmark::State& state) {
        const auto x = inputs();
        measure(state, {.flops = 7 * product}, forward_backward(x, [=] { return call(x); }));
    });
}

const bool registered = [] {
    add_attention("B128_H8_T24_D32", {128, 8, 24, 32}, false, 0);
    add_attention("B128_H8_T24_D32_dropout", {128, 8, 24, 32}, false, 0.1);
    add_attention("B128_H8_T24_D32_causal", {128, 8, 24, 32}, true, 0);
    add_attention("B8_H8_T256_D64", {8, 8, 256, 64}, false, 0);
    add_attention("B2_H8_T1024_D64_causal", {2, 8, 1024, 64}, true, 0);
    return true;
}();

}  // namespace
}  // namespace gradus::bench
