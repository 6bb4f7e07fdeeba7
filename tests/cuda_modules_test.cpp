// Layers on cards: the same results and gradients as on the CPU, with the same weights and the same draws.
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/container.h"
#include "gradus/nn/loss.h"
#include "gradus/nn/positions.h"
#include "gradus/nn/transformer.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor numbers(const Shape& shape, std::uint64_t salt) {
    Generator rng(salt);
    return uniform(shape, -1, 1, DType::f32, Device{}, &rng);
}
Tensor ids(const Shape& shape, std::int64_t below) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < shape.product(); ++i) values.push_back(i * 7 % below);
    return Tensor::from(values, shape, Device{});
}

/// call(layer, inputs) and the gradients of all floating inputs and parameters, in training and out of it, on both
/// cards as on the CPU.
template <class M, class Call>
void same_everywhere(const M& layer, const std::vector<Tensor>& inputs, const Call& call) {
    INFO(layer.kind());
    for (const bool training : {false, true}) {
        const auto results = [&](Device device) {
            const auto here = clone(layer);
            here->to(device);
            here->train(training);
            std::vector<Tensor> xs, wanted;
            for (const Tensor& input : inputs) {
                xs.push_back(clone(to(detach(input), device)));
                if (is_floating(input.dtype())) wanted.push_back(require_grad(xs.back()));
            }
            for (const Tensor& parameter : here->parameters()) wanted.push_back(parameter);
            manual_seed(3);
            const Tensor y = call(*here, xs);
            CHECK(y.device() == device);
            std::vector<Tensor> all = gradients(y, wanted, {}, to(numbers(y.shape(), 99), device));
            all.push_back(y);
            return all;
        };
        const std::vector<Tensor> host = results(Device{});
        for (const Device device : {card(0), last_card()}) {
            const std::vector<Tensor> there = results(device);
            for (std::size_t i = 0; i < host.size(); ++i) {
                INFO("result " << i << ", training " << training);
                REQUIRE(there[i].defined() == host[i].defined());
                if (host[i].defined())
                    CHECK(differs(there[i], host[i].to_vector<double>(), gradient_tolerance(DType::f32, 256)) == "");
            }
        }
    }
}

TEST_CASE("layers on a card give what they give on the CPU", "[cuda][modules]") {
    if (!have_cards(1)) return;
    Generator rng(1);
    const auto plain = [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0]); };
    same_everywhere(Linear(6, 5, rng), {numbers({2, 3, 6}, 1)}, plain);
    same_everywhere(LayerNorm(33), {numbers({4, 33}, 1)}, plain);
    same_everywhere(Dropout(0.3), {numbers({4, 33}, 1)}, plain);
    same_everywhere(Embedding(7, 5, rng), {ids({2, 3}, 7)}, plain);
    for (const Activation activation : {Activation::relu, Activation::gelu})
        same_everywhere(FeedForward(6, 10, 0.2, activation, rng), {numbers({2, 3, 6}, 1)}, plain);
    same_everywhere(MultiHeadAttention(8, 2, 0.1, rng), {numbers({2, 4, 8}, 1), numbers({2, 5, 8}, 2)},
                    [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0], x[1], x[1]).output; });
}

TEST_CASE("the parts of a Transformer on a card give what they give on the CPU", "[cuda][modules]") {
    if (!have_cards(1)) return;
    Generator rng(2);
    TransformerLayerOptions o;
    o.d_model = 8, o.heads = 2, o.hidden = 12;
    for (const bool pre_norm : {false, true}) {
        o.pre_norm = pre_norm;
        same_everywhere(TransformerEncoderLayer(o, rng), {numbers({2, 4, 8}, 1)},
                        [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0]); });
        same_everywhere(TransformerDecoderLayer(o, rng), {numbers({2, 3, 8}, 1), numbers({2, 4, 8}, 2)},
                        [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0], x[1]); });
        same_everywhere(Encoder(2, o, true, rng), {numbers({2, 4, 8}, 1)},
                        [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0]); });
        same_everywhere(Decoder(2, o, false, rng), {numbers({2, 3, 8}, 1), numbers({2, 4, 8}, 2)},
                        [](auto& layer, const std::vector<Tensor>& x) { return layer(x[0], x[1]); });
    }
}

}  // namespace
}  // namespace gradus::tests
