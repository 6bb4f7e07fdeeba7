// Losses: values worked out by hand, their divisors, their edges; fused against composed.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor f32(const std::vector<float>& values) { return Tensor::from(values, Device{}); }
CrossEntropyOptions options_of(Reduction reduction, std::int64_t ignored = -100) {
    CrossEntropyOptions options;
    options.reduction = reduction;
    options.ignore_index = ignored;
    return options;
}

TEST_CASE("cross_entropy and its composition agree in value and gradient", "[losses]") {
    for (const std::int64_t classes : {2, 31, 1025}) {
        const Tensor a = require_grad(draw(number(-4, 4), {33, classes}, DType::f32, 1));
        const Tensor b = require_grad(clone(detach(a)));
        const Tensor targets = draw(indices(classes), {33}, DType::i64, 3);
        const Tensor fused = cross_entropy(a, targets);
        const Tensor composed = nll_loss(log_softmax(b, 1), targets);
        CHECK(differs(fused, composed.to_vector<double>()) == "");
        backward(fused);
        backward(composed);
        CHECK(differs(a.grad(), b.grad().to_vector<double>()) == "");
    }
}

TEST_CASE("the sum and the count of a loss give its mean, however the batch is cut", "[losses]") {
    const Tensor x = draw(number(-3, 3), {10, 4}, DType::f64, 2);
    const Tensor targets = Tensor::from({0, 1, 2, 3, 0, 2, 2, 1, 0, 3}, Device{});
    const double whole = cross_entropy(x, targets, options_of(Reduction::mean, 2)).item();
    double total = 0, count = 0;
    for (const auto& [from, to] : {std::pair(0, 3), {3, 3}, {3, 10}}) {
        const LossSum part =
            cross_entropy_sum(slice(x, 0, from, to), slice(targets, 0, from, to), options_of(Reduction::mean, 2));
        total += part.sum.item();
        count += part.count.item();
    }
    CHECK(count == 7);
    CHECK(differs({total / count}, {whole}, tolerance(DType::f64, 10)) == "");
}

TEST_CASE("probabilities as targets: one-hot rows give the same loss as class numbers", "[losses]") {
    const Tensor x = draw(number(-3, 3), {6, 5}, DType::f64, 4);
    const Tensor targets = draw(indices(5), {6}, DType::i64, 5);
    CrossEntropyOptions options;
    options.label_smoothing = 0.25;
    const double wanted = cross_entropy(x, targets, options).item();
    CHECK(differs(cross_entropy(x, one_hot(targets, 5, DType::f64), options), {wanted}) == "");
    CHECK(contains(error_of([&] { cross_entropy(x, one_hot(targets, 5, DType::f64), options_of(Reduction::mean, 3)); }),
                   "ignore_index = 3 has no meaning"));
}

TEST_CASE("an empty batch: sum 0, mean NaN, gradient of the logits' shape", "[losses]") {
    const Tensor x = require_grad(zeros({0, 3}, DType::f32, Device{})), none = zeros({0}, DType::i64, Device{});
    CHECK(cross_entropy(x, none, options_of(Reduction::sum)).item() == 0);
    const Tensor mean_loss = cross_entropy(x, none);
    CHECK(std::isnan(mean_loss.item()));
    backward(mean_loss);
    CHECK(x.grad().shape() == Shape{0, 3});
    CHECK(cross_entropy(x, none, options_of(Reduction::none)).shape() == Shape{0});
}

TEST_CASE("classes on axis 1 of longer shapes", "[losses]") {
    const Tensor x = draw(number(-3, 3), {2, 3, 4}, DType::f64, 6);
    const Tensor targets = draw(indices(3), {2, 4}, DType::i64, 7);
    const Tensor rows = reshape(permute(x, {0, 2, 1}), {8, 3});
    CHECK(differs(cross_entropy(x, targets), {cross_entropy(rows, reshape(targets, {8})).item()}) == "");
    CHECK(cross_entropy(x, targets, options_of(Reduction::none)).shape() == Shape{2, 4});
    CHECK(contains(error_of([&] {
                       cross_entropy(x, full({2, 4}, 3, DType::i64, Device{}));
                   }),
                   "position (0, 0) holds 3"));
}

TEST_CASE("the gradient of cross_entropy takes the logits' memory where nobody needs them any more", "[losses]") {
    Generator rng(1);
    const Tensor x = require_grad(uniform({5, 4}, -1, 1, DType::f32, Device{}, &rng));
    const Tensor targets = Tensor::from(std::vector<std::int64_t>{1, 3, 0, 2, 1}, Device{});
    const Tensor expected = gradients(cross_entropy(x, targets), {x})[0];

    const void* memory = nullptr;
    const void* gradient = nullptr;
    const auto loss_of = [&](bool keep, Tensor& kept) {
        const Tensor logits = mul(x, 1.0);  // has a past that needs no elements of it
        memory = logits.address();
        if (keep) kept = logits;
        on_grad(logits, [&](const Tensor& g) { gradient = g.address(); });
        return cross_entropy(logits, targets);
    };
    for (const bool keep : {false, true})
        for (const bool retain : {false, true}) {
            INFO("kept " << keep << ", retained " << retain);
            Tensor kept;
            const Tensor loss = loss_of(keep, kept);
            zero_grad(x);
            backward(loss, {}, {.retain_graph = retain});
            CHECK((gradient == memory) == (!keep && !retain));
            CHECK(x.grad().to_vector<float>() == expected.to_vector<float>());
            if (keep) CHECK(kept.to_vector<float>() == x.to_vector<float>());
            if (!retain) continue;
            zero_grad(x);
            backward(loss);
            CHECK(x.grad().to_vector<float>() == expected.to_vector<float>());
        }
}

TEST_CASE("bce clamps its logs at -100 and stays finite", "[losses]") {
    const Tensor x = require_grad(f32({0, 1, 0.5f}));
    const Tensor y = bce_loss(x, f32({1, 0, 1}), Reduction::none);
    CHECK(differs(y, {100, 100, std::log(2.0)}) == "");
    backward(sum(y));
    for (const float g : x.grad().to_vector<float>()) CHECK(std::isfinite(g));
    CHECK(differs(bce_loss(f32({0, 1}), f32({0, 1})), {0}, exactly) == "");
}

TEST_CASE("bce_with_logits does not overflow at large logits", "[losses]") {
    const Tensor x = require_grad(f32({200, -200, 200, -200}));
    const Tensor y = bce_with_logits_loss(x, f32({1, 0, 0, 1}), Reduction::none);
    CHECK(differs(y, {0, 0, 200, 200}) == "");
    backward(sum(y));
    CHECK(differs(x.grad(), {0, 0, 1, -1}) == "");
}

TEST_CASE("the divergence of a Gaussian from the standard one", "[losses]") {
    CHECK(gaussian_kl(f32({0, 0}), f32({0, 0})).item() == 0);
    // mean 1, variance e: (e + 1 - 1 - 1) / 2
    CHECK(differs(gaussian_kl(f32({1}), f32({1})), {(std::exp(1.0) - 1) / 2}) == "");
    CHECK(differs(gaussian_kl(f32({1, 0}), f32({1, 0}), Reduction::mean), {(std::exp(1.0) - 1) / 4}) == "");
}

TEST_CASE("mean losses over nothing are NaN, sums are 0", "[losses]") {
    const Tensor none = f32({});
    CHECK(std::isnan(mse_loss(none, none).item()));
    CHECK(mse_loss(none, none, Reduction::sum).item() == 0);
    CHECK(l1_loss(none, none, Reduction::sum).item() == 0);
    CHECK(bce_loss(none, none, Reduction::sum).item() == 0);
}

TEST_CASE("targets may want gradients too", "[losses]") {
    const Tensor x = f32({1, 2}), t = require_grad(f32({3, 5}));
    backward(mse_loss(x, t, Reduction::sum));
    CHECK(differs(t.grad(), {4, 6}) == "");
}

}  // namespace
}  // namespace gradus::tests
