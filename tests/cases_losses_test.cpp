// Public bug reports of other systems, section C of cases.md: losses.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using Ids = std::vector<std::int64_t>;

Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return require_grad(Tensor::from(values, shape, Device{}));
}
Tensor ids(const Ids& values) { return Tensor::from(values, Device{}); }

CrossEntropyOptions with(Reduction reduction, std::int64_t ignore_index = -100, double smoothing = 0) {
    CrossEntropyOptions options;
    options.reduction = reduction;
    options.ignore_index = ignore_index;
    options.label_smoothing = smoothing;
    return options;
}
constexpr Reduction reductions[] = {Reduction::none, Reduction::sum, Reduction::mean};

TEST_CASE("BB-020 every target ignored: NaN mean, zero gradient", "[losses]") {
    const Tensor weight = leaf(std::vector<float>(50, 0.25f), {5, 10});
    const Tensor loss = cross_entropy(weight, ids(Ids(5, -100)));
    CHECK(std::isnan(loss.item()));
    backward(loss);
    CHECK(differs(weight.grad(), std::vector<double>(50, 0), exactly) == "");
    CHECK(differs(sub(detach(weight), mul(weight.grad(), 0.1)), std::vector<double>(50, 0.25), exactly) == "");
    const Tensor total = cross_entropy(weight, ids(Ids(5, -100)), with(Reduction::sum));
    CHECK(total.item() == 0);
    const LossSum parts = cross_entropy_sum(weight, ids(Ids(5, -100)));
    CHECK(parts.sum.item() == 0);
    CHECK(parts.count.item() == 0);
}

TEST_CASE("BB-021 a label out of range is named, and the engine goes on", "[losses]") {
    const Tensor logits = Tensor::from(std::vector<float>(10, 1), {2, 5}, Device{});
    const std::string error = error_of([&] { cross_entropy(logits, ids({0, 6})); });
    INFO(error);
    CHECK(contains(error, "cross_entropy"));
    CHECK(contains(error, "6"));
    CHECK(contains(error, "position 1"));
    CHECK(contains(error, "[0, 5)"));
    CHECK(differs(ones({3}, DType::f32, Device{}) + 3, {4, 4, 4}, exactly) == "");
}

TEST_CASE("BB-022 a negative label that is not ignore_index is refused in every reduction", "[losses]") {
    const Tensor logits = Tensor::from(std::vector<float>(15, 1), {3, 5}, Device{});
    for (const Reduction reduction : reductions) {
        for (const std::int64_t bad : {std::int64_t(-4), std::int64_t(5), (std::int64_t(1) << 32) + 1}) {
            const std::string error = error_of([&] { cross_entropy(logits, ids({1, 2, bad}), with(reduction, -1)); });
            INFO(error);
            CHECK(contains(error, std::to_string(bad)));
            CHECK(contains(error, "position 2"));
        }
    }
    const double row = std::log(5.0);
    CHECK(differs(cross_entropy(logits, ids({1, 2, -1}), with(Reduction::none, -1)), {row, row, 0}) == "");
}

TEST_CASE("BB-023 ignore_index outside the class range, in all reductions", "[losses]") {
    const Tensor logits = leaf({1, 0, 0, 0, 0, 0, 0, 0, 2}, {3, 3}), targets = ids({0, 255, 2});
    CHECK(differs(cross_entropy(logits, targets, with(Reduction::none, 255)), {0.551445, 0, 0.239545}, six_digits) ==
          "");
    CHECK(differs(cross_entropy(logits, targets, with(Reduction::sum, 255)), {0.790989}, six_digits) == "");
    const Tensor loss = cross_entropy(logits, targets, with(Reduction::mean, 255));
    CHECK(differs(loss, {0.395495}, six_digits) == "");
    backward(loss);
    CHECK(differs(select(logits.grad(), 0, 1), {0, 0, 0}, exactly) == "");
}

TEST_CASE("BB-024 ignore_index that is a real class ignores rows, not the class", "[losses]") {
    const Tensor logits = leaf({0, 1, 1, 0, 1, 1}, {2, 3});
    const Tensor loss = cross_entropy(logits, ids({1, 0}), with(Reduction::mean, 0));
    CHECK(differs(loss, {0.861995}, six_digits) == "");
    backward(loss);
    CHECK(differs(select(logits.grad(), 0, 1), {0, 0, 0}, exactly) == "");
}

TEST_CASE("BB-025 smoothing leaves ignored rows alone", "[losses]") {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        const Tensor logits = leaf({2, 0, 0, 0, 3, 0}, {2, 3});
        const Tensor loss = cross_entropy(logits, ids({0, -100}), with(reduction, -100, 0.3));
        CHECK(differs(loss, {0.639545}, six_digits) == "");
        backward(loss);
        CHECK(differs(logits.grad(), {-0.0130140, 0.0065070, 0.0065070, 0, 0, 0}, six_digits) == "");
    }
}

TEST_CASE("BB-026 class weights, smoothing and an ignored row together", "[losses]") {
    const Tensor logits = leaf({0, 1, 2, 0.5f}, {2, 2});
    CrossEntropyOptions options = with(Reduction::mean, -100, 0.2);
    options.class_weights = Tensor::from({0.4f, 0.6f}, Device{});
    const Tensor loss = cross_entropy(logits, ids({-100, 1}), options);
    CHECK(differs(loss, {1.544700}, six_digits) == "");
    backward(loss);
    CHECK(differs(select(logits.grad(), 0, 0), {0, 0}, exactly) == "");
    const LossSum parts = cross_entropy_sum(logits, ids({-100, 1}), options);
    CHECK(differs(parts.sum, {0.926820}, six_digits) == "");
    CHECK(differs(parts.count, {0.6}, six_digits) == "");
}

TEST_CASE("BB-028 very negative logits", "[losses]") {
    for (const float level : {-200.f, -5000.f})
        for (std::int64_t target = 0; target < 4; ++target) {
            const Tensor logits = leaf(std::vector<float>(4, level), {1, 4});
            const Tensor loss = cross_entropy(logits, ids({target}));
            CHECK(differs(loss, {1.386294}, six_digits) == "");
            backward(loss);
            std::vector<double> expected(4, 0.25);
            expected[std::size_t(target)] = -0.75;
            CHECK(differs(logits.grad(), expected) == "");
        }
}

TEST_CASE("BB-029 a logit of -inf off the target", "[losses]") {
    const Tensor logits = leaf({0, -INFINITY, 0}, {1, 3});
    const Tensor loss = cross_entropy(logits, ids({0}));
    CHECK(differs(loss, {0.693147}, six_digits) == "");
    backward(loss);
    CHECK(differs(logits.grad(), {-0.5, 0, 0.5}) == "");
    CHECK(cross_entropy(logits, ids({1})).item() == INFINITY);
}

TEST_CASE("BB-030 logits that are an expanded tensor", "[losses]") {
    const Tensor b = leaf({0, 1, 2}, {3});
    const Tensor loss = cross_entropy(expand(b, {4, 3}), ids({0, 1, 2, 2}));
    CHECK(differs(loss, {1.157606}, six_digits) == "");
    backward(loss);
    CHECK(differs(b.grad(), {-0.159969, -0.005272, 0.165241}, six_digits) == "");
}

TEST_CASE("BB-031 targets of 32 bits are read as such, others are refused by name", "[losses]") {
    const Tensor logits = Tensor::from({1.f, 2.f, 3.f, 3.f, 1.f, 0.f, 0.f, 0.f, 1.f, 2.f, 2.f, 5.f}, {4, 3}, Device{});
    const double wide = cross_entropy(logits, ids({1, 0, 2, 1})).item();
    CHECK(cross_entropy(logits, Tensor::from({1, 0, 2, 1}, Device{})).item() == wide);
    CHECK(contains(error_of([&] { cross_entropy(logits, Tensor::from({1.f, 0.f, 2.f, 1.f}, Device{})); }), "f32"));
    CHECK(contains(error_of([&] {
                       cross_entropy(logits, Tensor::from({true, false, true, true}, Device{}));
                   }),
                   "bool"));
}

}  // namespace
}  // namespace gradus::tests
