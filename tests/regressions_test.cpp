// Faults found by reading the code, each kept as a test with the right value.
#include <cmath>

#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"

namespace gradus {
namespace {

using tests::contains;
using tests::error_of;

Tensor leaf(const std::vector<double>& values) { return require_grad(Tensor::from(values, Device{})); }
std::vector<double> grad_of(const Tensor& x) { return x.grad().to_vector<double>(); }

}  // namespace

TEST_CASE("targets and class weights that change before backward are refused", "[losses]") {
    const Tensor x = require_grad(zeros({1, 3}, DType::f64, Device{}));
    const Tensor target = Tensor::from<std::int64_t>({0}, Device{});
    Tensor loss = cross_entropy(x, target);
    fill_(target, 1000000000);
    CHECK(contains(error_of([&] { backward(loss); }), "was modified in place"));
    fill_(target, 0);
    const Tensor weights = ones({3}, DType::f64, Device{});
    loss = cross_entropy(x, target, {.class_weights = weights});
    fill_(weights, 100);
    CHECK(contains(error_of([&] { backward(loss); }), "was modified in place"));
    loss = nll_loss(log_softmax(x, 1), target);
    fill_(target, 2);
    CHECK(contains(error_of([&] { backward(loss); }), "was modified in place"));
}

TEST_CASE("a saved tensor whose memory was exchanged is refused", "[autograd]") {
    const Tensor x = leaf({1, 2}), w = leaf({3, 4});
    const Tensor y = sum(x * w);
    move_leaf(w, Tensor::from<double>({100, 200}, Device{}));
    CHECK(contains(error_of([&] { backward(y); }), "was moved to other memory"));
}

TEST_CASE("gradients of leaves share nothing, also after create_graph", "[autograd]") {
    const Tensor a = leaf({0, 0}), b = leaf({0, 0}), w = leaf({5, 6});
    backward(sum((a + b) * w), {}, {.create_graph = true});
    backward(sum(a));
    CHECK(grad_of(b) == std::vector<double>{5, 6});
    CHECK(grad_of(a) == std::vector<double>{6, 7});
    CHECK(w.to_vector<double>() == std::vector<double>{5, 6});
    for (const Tensor& x : {a, b, w}) zero_grad(x);  // their graphs hold the leaves

    const Tensor x = leaf({0, 0, 0}), k = leaf({5});
    backward(sum(sum(x) * k), {}, {.create_graph = true});
    backward(sum(x * Tensor::from<double>({1, 2, 3}, Device{})));
    CHECK(grad_of(x) == std::vector<double>{6, 7, 8});
    for (const Tensor& leaf : {x, k}) zero_grad(leaf);

    const Tensor shared = Tensor::from<double>({1, 1}, Device{}), p = leaf({0, 0}), q = leaf({0, 0});
    assign_grad(p, shared);
    assign_grad(q, shared);
    backward(sum(p));
    CHECK(grad_of(p) == std::vector<double>{2, 2});
    CHECK(grad_of(q) == std::vector<double>{1, 1});

    const Tensor square = require_grad(arange(9, DType::f64, Device{}));
    const Tensor m = require_grad(zeros({3, 3}, DType::f64, Device{}));
    assign_grad(m, clone(view(detach(square), {3, 3})));
    backward(transpose(m), m.grad());
    CHECK(grad_of(m) == std::vector<double>{0, 4, 8, 4, 8, 12, 8, 12, 16});
}

TEST_CASE("second derivatives are not lost where an element is special", "[autograd]") {
    const auto check = [](const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& xs) {
        gradcheck(f, xs);
        gradgradcheck(f, xs);
    };
    check([](const std::vector<Tensor>& x) { return prod(x[0]); }, {leaf({0, 2, 3})});
    check([](const std::vector<Tensor>& x) { return prod(x[0]); }, {leaf({0, 0, 3})});
    check([](const std::vector<Tensor>& x) { return prod(x[0], {0}); },
          {require_grad(Tensor::from<double>({0, 2, 3, 0, 5, 6}, {3, 2}, Device{}))});
    // ∂²/∂a∂b aᵇ at b = 0 is 1 / a.
    const Tensor a = leaf({2}), b = leaf({0});
    const Tensor ga = gradients(pow(a, b), {a}, {.create_graph = true})[0];
    CHECK(gradients(ga, {b})[0].item() == Approx(0.5));
}

TEST_CASE("a probability of 0 as target still has a gradient", "[losses]") {
    const Tensor x = require_grad(Tensor::from<double>({1, 2, 3}, {1, 3}, Device{}));
    const Tensor q = require_grad(Tensor::from<double>({0, 0.5, 0.5}, {1, 3}, Device{}));
    backward(cross_entropy(x, q));
    const double total = std::exp(1) + std::exp(2) + std::exp(3);
    CHECK(q.grad().to_vector<double>()[0] == Approx(std::log(total) - 1));
}

TEST_CASE("what cannot be seen stays silent when the backward pass is recorded", "[autograd]") {
    const Tensor x = require_grad(Tensor::from<double>({1, 2, 3}, {1, 3}, Device{}));
    const Tensor seen = Tensor::from<bool>({true, true, false}, {1, 3}, Device{});
    const auto f = [&] { return sum(where(seen, log(masked_softmax(x, seen, -1)), 0)); };
    const std::vector<double> plain = gradients(f(), {x})[0].to_vector<double>();
    const std::vector<double> recorded = gradients(f(), {x}, {.create_graph = true})[0].to_vector<double>();
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(std::isfinite(plain[i]));
        CHECK(recorded[i] == Approx(plain[i]).margin(1e-12));
    }
    const Tensor rows = require_grad(Tensor::from<double>({1, 2, NAN, NAN}, {2, 2}, Device{}));
    const Tensor targets = Tensor::from<std::int64_t>({0, -100}, Device{});
    const auto grad = gradients(cross_entropy(rows, targets), {rows}, {.create_graph = true})[0].to_vector<double>();
    CHECK(grad[2] == 0);
    CHECK(grad[3] == 0);
}

TEST_CASE("shapes that only fit by overflow are refused", "[views]") {
    const Tensor x = zeros({4}, DType::f32, Device{});
    CHECK(contains(error_of([&] { view(x, {20, 922337203685477581}); }), "too many elements"));
    CHECK(contains(error_of([&] {
                       reshape(zeros({0}, DType::f32, Device{}), {std::int64_t(1) << 32, std::int64_t(1) << 32});
                   }),
                   "too many elements"));
}

TEST_CASE("attention that sees nothing is zero even where the values are NaN", "[attention]") {
    const Tensor q = ones({1, 1, 2, 4}, DType::f32, Device{}), v = full({1, 1, 3, 4}, NAN, DType::f32, Device{});
    const Tensor k = ones({1, 1, 3, 4}, DType::f32, Device{}), none = zeros({2, 3}, DType::boolean, Device{});
    for (const double y : scaled_dot_product_attention(q, k, v, {.mask = none}).to_vector<double>()) CHECK(y == 0);
}

TEST_CASE("dropout keeps the mean at rates its lanes cannot tell", "[random]") {
    // p = 0.99999 rounds to 65535 / 65536: one in 65,536 is kept, times 65,536.
    manual_seed(5);
    const Tensor y = dropout(ones({1 << 16}, DType::f32, Device{}), 0.99999);
    for (const float v : y.to_vector<float>()) CHECK((v == 0 || v == 65536));
}

TEST_CASE("an op's result is a tensor of its own", "[views]") {
    const Tensor x = ones({2, 2}, DType::f32, Device{});
    fill_(repeat(x, {1, 1}), 7);
    fill_(clamp(x, -INFINITY, INFINITY), 7);
    CHECK(x.to_vector<float>() == std::vector<float>(4, 1));
    CHECK(slice(x, 0, 0, 2, std::int64_t(1) << 62).shape() == Shape{1, 2});
    CHECK(Tensor::from<double>({0.5}, Device{}).item<bool>());
    CHECK(Tensor::from<double>({1e30}, Device{}).item<std::int64_t>() == std::numeric_limits<std::int64_t>::max());
}

}  // namespace gradus
