// A model trained on a card takes the steps it takes on the CPU.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/storage.h"
#include "gradus/nn/checkpoint.h"
#include "gradus/nn/optimizer.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/tests/cards.h"

namespace gradus::tests {
namespace {

TransformerOptions tiny() {
    TransformerOptions o;
    o.source_vocabulary = 13, o.target_vocabulary = 11;
    o.d_model = 16, o.heads = 4, o.hidden = 24;
    o.encoder_layers = 2, o.decoder_layers = 2;
    o.longest = 16;
    o.dropout = 0.1;
    o.tie_output = true;
    return o;
}

Tensor ids(std::int64_t rows, std::int64_t columns, std::int64_t below, std::int64_t salt, Device device) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < rows * columns; ++i)
        values.push_back(i % columns >= columns - (i / columns) % 3 ? 0 : 1 + (i * 7 + salt * 5) % (below - 1));
    return to(Tensor::from(values, {rows, columns}, Device{}), device);
}

struct Run {
    std::vector<double> losses, norms;
    NamedTensors parameters;  // on the CPU
    std::vector<double> logits;
};

Run train(Device device, int steps) {
    Generator rng(3);
    Transformer model(tiny(), rng);
    model.to(device);
    Adam optimizer(model.named_parameters(), {.lr = 1e-2});
    manual_seed(11);
    Run run;
    for (int step = 0; step < steps; ++step) {
        const Tensor source = ids(3, 7, 13, step, device), target = ids(3, 6, 11, step + 1, device);
        const Tensor logits = model(source, slice(target, 1, 0, 5));
        const Tensor loss = cross_entropy(reshape(logits, {15, 11}), reshape(contiguous(slice(target, 1, 1, 6)), {15}),
                                          {.ignore_index = 0, .label_smoothing = 0.1});
        backward(loss);
        run.losses.push_back(loss.item());
        run.norms.push_back(optimizer.step({.clip_norm = 1, .check_finite = true}).item());
        optimizer.zero_grad();
    }
    for (const auto& [name, tensor] : model.state_dict()) run.parameters.emplace_back(name, to(tensor, Device{}));
    model.eval();
    const NoGrad scope;
    run.logits = model(ids(2, 5, 13, 9, device), ids(2, 4, 11, 9, device)).to_vector<double>();
    return run;
}

TEST_CASE("a Transformer trained on a card follows the CPU step by step", "[cuda][training]") {
    if (!have_cards(1)) return;
    const Run host = train(Device{}, 4), there = train(last_card(), 4);
    for (std::size_t i = 0; i < host.losses.size(); ++i) {
        CHECK(there.losses[i] == Approx(host.losses[i]).epsilon(2e-5));
        CHECK(there.norms[i] == Approx(host.norms[i]).epsilon(1e-3));
    }
    CHECK(host.losses.back() < host.losses.front());
    REQUIRE(host.parameters.size() == there.parameters.size());
    for (std::size_t i = 0; i < host.parameters.size(); ++i) {
        INFO(host.parameters[i].first);
        // A bias of keys shifts all scores of a row alike: its gradient is 0 but for rounding, and Adam enlarges that.
        if (contains(host.parameters[i].first, "fc_k.bias")) continue;
        const auto a = host.parameters[i].second.to_vector<double>(),
                   b = there.parameters[i].second.to_vector<double>();
        // Adam divides by the size of a gradient: where that is almost 0, rounding decides the sign. So the mean
        // counts.
        double distance = 0, size = 0;
        for (std::size_t j = 0; j < a.size(); ++j) distance += (a[j] - b[j]) * (a[j] - b[j]), size += a[j] * a[j];
        CHECK(std::sqrt(distance) <= 2e-3 * std::sqrt(size) + 1e-6);
    }
    for (std::size_t i = 0; i < host.logits.size(); ++i) CHECK(there.logits[i] == Approx(host.logits[i]).margin(2e-2));
}

TEST_CASE("training on a card repeats bit for bit", "[cuda][training]") {
    if (!have_cards(1)) return;
    const Run first = train(card(0), 3), second = train(card(0), 3);
    CHECK(first.losses == second.losses);
    CHECK(first.logits == second.logits);
    for (std::size_t i = 0; i < first.parameters.size(); ++i)
        CHECK(first.parameters[i].second.to_vector<double>() == second.parameters[i].second.to_vector<double>());
}

TEST_CASE("a steady training step on a card asks the driver for no memory", "[cuda][training]") {
    if (!have_cards(1)) return;
    const Device there = card(0);
    Generator rng(3);
    Transformer model(tiny(), rng);
    model.to(there);
    Adam optimizer(model.named_parameters(), {.lr = 1e-3});
    const auto step = [&] {
        const Tensor target = ids(3, 6, 11, 2, there);
        const Tensor logits = model(ids(3, 7, 13, 1, there), slice(target, 1, 0, 5));
        backward(cross_entropy(reshape(logits, {15, 11}), reshape(contiguous(slice(target, 1, 1, 6)), {15})));
        optimizer.step();
        optimizer.zero_grad();
    };
    for (int i = 0; i < 3; ++i) step();
    const std::int64_t before = pool_statistics(there).system_allocations;
    for (int i = 0; i < 3; ++i) step();
    CHECK(pool_statistics(there).system_allocations == before);
}

TEST_CASE("BB-126 optimizer state follows its parameter to a card and back", "[cuda][training]") {
    if (!have_cards(1)) return;
    Generator rng(1);
    Transformer model(tiny(), rng);
    Adam optimizer(model.named_parameters(), {.lr = 1e-3});
    for (const Device device : {Device{}, card(0), Device{}}) {
        model.to(device);
        const Tensor target = ids(3, 6, 11, 2, device);
        const Tensor logits = model(ids(3, 7, 13, 1, device), slice(target, 1, 0, 5));
        backward(cross_entropy(reshape(logits, {15, 11}), reshape(contiguous(slice(target, 1, 1, 6)), {15})));
        optimizer.step();
        optimizer.zero_grad();
        for (const auto& [name, tensor] : optimizer.state_dict())
            if (tensor.rank() > 0) CHECK(tensor.device() == device);
    }
}

}  // namespace
}  // namespace gradus::tests
