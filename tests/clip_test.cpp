// Clipping of gradients.
#include <cmath>
#include <limits>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/clip.h"
#include "gradus/nn/optimizer.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

Tensor leaf(std::size_t n) { return require_grad(Tensor::from(std::vector<double>(n, 1.0), Device{})); }
void give(const Tensor& p, const std::vector<double>& g) { assign_grad(p, Tensor::from(g, Device{})); }
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("BB-130 clipping nothing, zeros, and below the limit", "[clip]") {
    const Tensor a = leaf(2), b = leaf(1);
    const NamedTensors parameters = {{"a", a}, {"b", b}};
    CHECK(clip_grad_norm(parameters, 1) == 0);
    CHECK(clip_grad_norm({}, 1) == 0);
    give(a, {0.0, 0.0});
    CHECK(clip_grad_norm(parameters, 1) == 0);
    CHECK(a.grad().to_vector<double>() == std::vector<double>{0, 0});
    give(a, {0.3, 0.4});
    const auto version = a.grad().version();
    CHECK(clip_grad_norm(parameters, 1) == Approx(0.5).epsilon(1e-15));
    CHECK(a.grad().to_vector<double>() == std::vector<double>{0.3, 0.4});
    CHECK(a.grad().version() == version);
    give(a, {3.0, 4.0});
    CHECK(clip_grad_norm({{"a", a}, {"again", a}}, 100) == 5);
}

TEST_CASE("BB-130 gradients on two devices have one norm", "[clip]") {
    if (device_count(Device::cpu) < 2) return;  // needs GRADUS_CPU_DEVICES=2
    const Device other{Device::cpu, 1};
    const Tensor a = leaf(1), b = require_grad(to(Tensor::from({1.0}, Device{}), other));
    give(a, {3.0});
    assign_grad(b, to(Tensor::from({4.0}, Device{}), other));
    CHECK(clip_grad_norm({{"a", a}, {"b", b}}, 10) == 5);
}

TEST_CASE("clip_grad_norm scales by limit / (norm + 1e-6) and returns the norm before", "[clip]") {
    const Tensor a = leaf(2), b = leaf(1);
    give(a, {2.0, 3.0}), give(b, {6.0});
    CHECK(clip_grad_norm({{"a", a}, {"b", b}}, 3.5) == Approx(7).epsilon(1e-15));
    const double factor = 3.5 / (7 + 1e-6);
    CHECK(a.grad().to_vector<double>()[1] == Approx(3 * factor).epsilon(1e-15));
    CHECK(b.grad().to_vector<double>()[0] == Approx(6 * factor).epsilon(1e-15));
    CHECK(clip_factor(7, 3.5) == Approx(factor).epsilon(1e-15));
    CHECK(clip_factor(1, 2) == 1);
}

TEST_CASE("a norm that is not finite", "[clip]") {
    const Tensor a = leaf(2), b = leaf(1);
    const NamedTensors parameters = {{"a", a}, {"b", b}};
    give(a, {1.0, not_a_number}), give(b, {1.0});
    CHECK(contains(error_of([&] { clip_grad_norm(parameters, 1, true); }), "the norm of the gradients is nan"));
    CHECK(b.grad().item() == 1);
    CHECK(std::isnan(clip_grad_norm(parameters, 1)));
    CHECK(std::isnan(b.grad().item()));
    CHECK(std::isnan(a.grad().to_vector<double>()[0]));
    give(a, {1.0, inf}), give(b, {1.0});
    CHECK(contains(error_of([&] { clip_grad_norm(parameters, 1, true); }), "the norm of the gradients is inf"));
    CHECK(std::isinf(clip_grad_norm(parameters, 1)));
    CHECK(b.grad().item() == 0);
}

TEST_CASE("an expanded gradient is clipped in a copy of its own", "[clip]") {
    const Tensor a = leaf(4);
    backward(sum(a) * 3);
    CHECK(clip_grad_norm({{"a", a}}, 1) == Approx(6).epsilon(1e-15));
    for (const double g : a.grad().to_vector<double>()) CHECK(g == Approx(3 / (6 + 1e-6)).epsilon(1e-12));
    const Tensor b = leaf(4);
    backward(sum(b) * 3);
    clip_grad_value({{"b", b}}, 0.5);
    CHECK(b.grad().to_vector<double>() == std::vector<double>(4, 0.5));
}

TEST_CASE("clip_grad_value", "[clip]") {
    const Tensor a = leaf(5);
    give(a, {-3.0, -0.5, 0.25, 2.0, not_a_number});
    clip_grad_value({{"a", a}}, 0.5);
    const auto g = a.grad().to_vector<double>();
    CHECK(std::vector<double>(g.begin(), g.begin() + 4) == std::vector<double>{-0.5, -0.5, 0.25, 0.5});
    CHECK(std::isnan(g[4]));
    CHECK(contains(error_of([&] { clip_grad_value({{"a", a}}, -1); }), "got -1"));
    CHECK(contains(error_of([&] { clip_grad_norm({{"a", a}}, -1); }), "got -1"));
}

TEST_CASE("clipping inside the step equals clipping before it", "[clip]") {
    const Tensor a = leaf(3), b = leaf(3), c = leaf(3);
    SGD first({{"a", a}}, {.lr = 0.1}), second({{"b", b}}, {.lr = 0.1}), third({{"c", c}}, {.lr = 0.1});
    give(a, {3.0, 4.0, 12.0}), give(b, {3.0, 4.0, 12.0}), give(c, {6.0, 8.0, 24.0});
    CHECK(clip_grad_norm({{"a", a}}, 2) == 13);
    CHECK_FALSE(first.step().defined());
    second.step({.gradient_scale = clip_factor(gradient_norm({{"b", b}}), 2)});
    CHECK(third.step({.gradient_scale = 0.5, .clip_norm = 2}).item() ==
          Approx(13).epsilon(1e-15));  // scaled, then clipped
    CHECK(a.to_vector<double>()[2] == Approx(1 - 0.1 * 12 * 2 / (13 + 1e-6)).epsilon(1e-14));
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(a.to_vector<double>()[i] == Approx(b.to_vector<double>()[i]).epsilon(1e-15));
        CHECK(a.to_vector<double>()[i] == Approx(c.to_vector<double>()[i]).epsilon(1e-15));
    }
    CHECK(c.grad().to_vector<double>() == std::vector<double>{6, 8, 24});
    CHECK(error_of([&] { third.step({.clip_norm = -1}); }) == "sgd: clip_norm must be 0 or more: got -1");
}
