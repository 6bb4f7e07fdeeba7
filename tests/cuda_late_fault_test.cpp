// What a card finds in its data: told with the next wait, which an op does not make.
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/late_fault.h"
#include "gradus/nn/embedding.h"
#include "gradus/nn/optimizer.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/tests/cards.h"
#ifdef GRADUS_EMULATED
#include "gradus/core/emulation/runtime.h"
#endif

namespace gradus::tests {
namespace {

Tensor ids(std::vector<std::int64_t> values, const Shape& shape) { return Tensor::from(values, shape, card(0)); }

TEST_CASE("an index out of range is told with the next wait, once, and names the module", "[cuda][errors]") {
    if (!have_cards(1)) return;
    Generator rng(1);
    Embedding layer(5, 3, rng);
    layer.to(card(0));
    const Tensor places = ids({1, 2, 3, 4, 7, 0}, {2, 3});
    const Tensor y = layer(places);
    fill_(places, 1);  // the error still tells what the op was given
    CHECK(error_of([&] { y.to_vector<float>(); }) ==
          "embedding: index 7 at position (1, 1) is out of range: expected 0 to 4 (in Embedding)");
    const std::vector<float> row = layer.weight.to_vector<float>();
    CHECK(y.to_vector<float>()[12] == row[0]);  // the card is well, and read row 0 in its place
    CHECK(layer(places).to_vector<float>()[0] == row[3]);
}

TEST_CASE("the first of several faults is told", "[cuda][errors]") {
    if (!have_cards(1)) return;
    const Tensor x = zeros({4, 2}, DType::f32, card(0));
    const std::string error = error_of([&] {
        index_select(x, 0, ids({0, 4, 9}, {3}));
        index_select(x, 1, ids({-1}, {1}));
        gather(x, 0, ids({5, 5}, {1, 2}));
        synchronize(card(0));
    });
    CHECK(error == "index_select: index 4 at position (1,) is out of range: expected 0 to 3");
    synchronize(card(0));  // nothing is left
}

TEST_CASE("BB-021 a target out of range is told with the next wait and counts nothing until then", "[cuda][errors]") {
    if (!have_cards(1)) return;
    const Tensor logits = require_grad(zeros({3, 4}, DType::f64, card(0)));
    const LossSum loss = cross_entropy_sum(logits, ids({1, 8, 2}, {3}));
    CHECK(error_of([&] { loss.sum.item(); }) ==
          "cross_entropy_sum: a target is out of range: position 1 holds 8, classes are [0, 4) and ignore_index is "
          "-100");
    CHECK(loss.count.item() == 2);
    backward(loss.sum);
    CHECK(logits.grad().to_vector<double>()[4] == 0);
}

TEST_CASE("a fault is told by the wait for its stream, whatever other streams still do", "[cuda][errors]") {
    if (!have_cards(1)) return;
    const Stream busy(card(0)), idle(card(0));
    const Tensor x = zeros({4, 2}, DType::f32, card(0)), wrong = ids({7}, {1}), right = ids({1}, {1});
    synchronize(card(0));
    {
        const StreamGuard guard(busy);
        index_select(x, 0, right);  // its answer is still to come
    }
    const std::string error = error_of([&] {
        const StreamGuard guard(idle);
        index_select(x, 0, wrong);
        idle.synchronize();
    });
    CHECK(contains(error, "index 7 at position (0,)"));
    synchronize(card(0));
}

TEST_CASE("an empty axis has no index: told at once", "[cuda][errors]") {
    if (!have_cards(1)) return;
    CHECK(error_of([&] {
              index_select(zeros({0, 2}, DType::f32, card(0)), 0, ids({3}, {1}));
          }) == "index_select: index 3 at position (0,): the axis is empty");
}

TEST_CASE("only cards answer late", "[errors]") {
    CHECK(error_of([] { watch(zeros({2}, DType::i64, Device{}), [](auto, auto) { return std::string(); }); }) ==
          "watch: only cards answer late: got cpu");
}

#ifdef GRADUS_EMULATED
TEST_CASE("a training step gives its work to the card and does not wait", "[cuda][training]") {
    if (!have_cards(1)) return;
    TransformerOptions options;
    options.source_vocabulary = 13, options.target_vocabulary = 11;
    options.d_model = 16, options.heads = 2, options.hidden = 24;
    options.encoder_layers = options.decoder_layers = 1;
    Generator rng(3);
    Transformer model(options, rng);
    model.to(card(0));
    Adam optimizer(model.named_parameters());
    const Tensor source = ids({1, 2, 3, 4, 5, 6, 7, 0}, {2, 4}), given = ids({2, 5, 6, 2, 9, 0}, {2, 3}),
                 wanted = ids({5, 6, 3, 9, 3, 0}, {6});
    for (int step = 0; step < 4; ++step) {
        const std::int64_t before = emulation::host_waits();
        optimizer.zero_grad();
        const LossSum loss = cross_entropy_sum(reshape(model(source, given), {6, 11}), wanted, {.ignore_index = 0});
        backward(loss.sum / loss.count);
        optimizer.step({.clip_norm = 1});
        INFO("step " << step);
        if (step > 0) CHECK(emulation::host_waits() == before);  // the first fills the pool
        CHECK(std::isfinite(loss.sum.item()));
    }
}
#endif

}  // namespace
}  // namespace gradus::tests
