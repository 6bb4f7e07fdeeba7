// Public bug reports of other systems, section F of cases.md: autograd. Those with threads are in threads_test.cpp.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using Numbers = std::vector<double>;

Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return require_grad(Tensor::from(values, shape, Device{}));
}
Tensor leaf(std::initializer_list<float> values) { return leaf(values, {std::int64_t(values.size())}); }
Tensor range(const Shape& shape) { return reshape(arange(shape.product(), DType::f32, Device{}), shape); }

TEST_CASE("BB-049 a tensor used twice gets both gradients, once each", "[autograd]") {
    const Tensor x = leaf({1});
    const Tensor y = 4 * x;
    backward(3 * y + 2 * y);
    CHECK(x.grad().item() == 20);
    const Tensor u = leaf({5});
    const Tensor v = u + u;
    const Tensor w = v + v;
    backward(w + v);
    CHECK(u.grad().item() == 6);
}

TEST_CASE("BB-051 a leaf's gradient aliases neither the caller's nor another leaf's", "[autograd]") {
    const Tensor a = leaf({0, 0, 0}), b = leaf({0, 0, 0}), g = ones({3}, DType::f32, Device{});
    backward(a + b, g);
    fill_(a.grad(), 10);
    CHECK(differs(b.grad(), {1, 1, 1}, exactly) == "");
    CHECK(differs(g, {1, 1, 1}, exactly) == "");
    const auto own = [](const Tensor& x) {
        CHECK(x.grad().is_contiguous());
        CHECK_FALSE(x.grad().requires_grad());
        CHECK(x.grad().storage().use_count() == 1);
        fill_(x.grad(), 0);
    };
    own(a);
    own(b);
    zero_grad(a);
    backward(view(a, {3, 1}), ones({3, 1}, DType::f32, Device{}));
    own(a);
    zero_grad(a);
    zero_grad(b);
    backward(sum(a + b));
    own(a);
    CHECK(differs(b.grad(), {1, 1, 1}, exactly) == "");
    own(b);
    zero_grad(a);
    backward(expand(a, {2, 3}), ones({2, 3}, DType::f32, Device{}));
    CHECK(differs(a.grad(), {2, 2, 2}, exactly) == "");
    own(a);
}

TEST_CASE("BB-052 a saved operand that was changed is noticed", "[autograd]") {
    const Tensor x = require_grad(ones({4, 2}, DType::f32, Device{}));
    const Tensor s = Tensor::scalar(5, DType::f32, Device{});
    const Tensor loss = sum(x * s);
    fill_(s, 10);
    CHECK(error_of([&] { backward(loss); }) ==
          "backward: a tensor of shape () that an op saved for its gradient was modified in place (version 2, saved at "
          "1): "
          "change it after backward, or save a clone");
    CHECK_FALSE(x.grad().defined());
}

TEST_CASE("BB-054 backward straight from an activation", "[autograd]") {
    for (const bool further : {false, true}) {
        const Tensor x = leaf({0.5f});
        Tensor y = tanh(3 * x);
        if (further) y = reshape(y, {1, 1});
        backward(y);
        CHECK(differs(x.grad(), {0.542120}, six_digits) == "");
    }
}

TEST_CASE("BB-057 slices: dropped elements, overlaps, unused parts", "[autograd]") {
    const auto gradient = [](auto loss_of) {
        const Tensor x = leaf({1, 2, 3, 4});
        backward(loss_of(x));
        return x.grad();
    };
    CHECK(differs(gradient([](const Tensor& x) { return sum(slice(x, 0, 1, 3)); }), {0, 1, 1, 0}, exactly) == "");
    CHECK(differs(gradient([](const Tensor& x) { return sum(slice(x, 0, 0, 3)) + sum(slice(x, 0, 1, 4)); }),
                  {1, 2, 2, 1}, exactly) == "");
    CHECK(differs(gradient([](const Tensor& x) { return sum(split(x, 2)[1]); }), {0, 0, 1, 1}, exactly) == "");
    CHECK(differs(gradient([](const Tensor& x) {
                      const Tensor left = slice(x, 0, 0, 2);
                      return sum(cat({left, left}) * Tensor::from({1.f, 2.f, 3.f, 4.f}, Device{}));
                  }),
                  {4, 6, 0, 0}, exactly) == "");
}

TEST_CASE("BB-058 the gradient of a broadcast operand has its shape", "[autograd]") {
    const auto check = [](const Shape& a_shape, const Shape& b_shape, double a_gradient, double b_gradient) {
        const Tensor a = require_grad(ones(a_shape, DType::f32, Device{})),
                     b = require_grad(ones(b_shape, DType::f32, Device{}));
        backward(sum(a + b));
        CHECK(a.grad().shape() == a_shape);
        CHECK(b.grad().shape() == b_shape);
        CHECK(differs(a.grad(), Numbers(std::size_t(a.numel()), a_gradient), exactly) == "");
        CHECK(differs(b.grad(), Numbers(std::size_t(b.numel()), b_gradient), exactly) == "");
    };
    check({2, 1}, {1, 3}, 3, 2);
    check({3, 4}, {1, 4}, 1, 3);
    check({3}, {}, 1, 3);
}

TEST_CASE("BB-059 leading and inner axes broadcast together", "[autograd]") {
    const Tensor w = range({4, 2, 3});
    const Tensor x = require_grad(ones({2, 1}, DType::f32, Device{}));
    backward(sum(expand(x, {4, 2, 3}) * w));
    CHECK(differs(x.grad(), {120, 156}, exactly) == "");
    const Tensor y = require_grad(ones({1, 2, 1}, DType::f32, Device{}));
    backward(sum(y * w));
    CHECK(y.grad().shape() == Shape{1, 2, 1});
    CHECK(differs(y.grad(), {120, 156}, exactly) == "");
    const Tensor z = leaf({1});
    backward(sum(expand(z, {2, 0, 3})));
    CHECK(differs(z.grad(), {0}, exactly) == "");
}

TEST_CASE("BB-061 repeated indices accumulate", "[autograd]") {
    const Tensor x = leaf({7});
    backward(gather(x, 0, Tensor::from({0, 0}, Device{})), Tensor::from({1.5f, 2.f}, Device{}));
    CHECK(x.grad().item() == 3.5);
    const Tensor y = leaf({7, 8});
    backward(index_select(y, 0, Tensor::from({1, 1, 1}, Device{})), Tensor::from({1.f, 2.f, 4.f}, Device{}));
    CHECK(differs(y.grad(), {0, 7}, exactly) == "");
    const Tensor table = require_grad(ones({5, 2}, DType::f32, Device{}));
    backward(embedding(Tensor::from({3, 3, 0}, Device{}), table), range({3, 2}));
    CHECK(differs(table.grad(), {4, 5, 0, 0, 0, 0, 2, 4, 0, 0}, exactly) == "");
}

TEST_CASE("BB-063 a second backward says that the graph was freed", "[autograd]") {
    const Tensor x = leaf({1, 2}), index = Tensor::from({2, 0}, Device{});
    const Tensor loss = sum(square(scatter_add(zeros({3}, DType::f32, Device{}), 0, index, x)));
    backward(loss, {}, {.retain_graph = true});
    backward(loss);
    CHECK(differs(x.grad(), {4, 8}, exactly) == "");
    const std::string error = error_of([&] { backward(loss); });
    CHECK(contains(error, "backward: the graph was freed by an earlier backward (at "));
    CHECK(contains(error, "): pass retain_graph = true to the first one to run it again"));
    CHECK(differs(x.grad(), {4, 8}, exactly) == "");
}

TEST_CASE("BB-064 grad mode is restored on every way out", "[autograd]") {
    REQUIRE(grad_enabled());
    try {
        const NoGrad scope;
        CHECK_FALSE(grad_enabled());
        throw 1;
    } catch (int) {
    }
    CHECK(grad_enabled());
    {
        const NoGrad off;
        {
            const EnableGrad on;
            CHECK(grad_enabled());
            const Tensor x = leaf({2});
            backward(sum(square(x)));
            CHECK(grad_enabled());
            gradients(sum(square(x)), {x}, {.create_graph = true});
            CHECK(grad_enabled());
            { const NoGrad inner; }
            CHECK(grad_enabled());
        }
        CHECK_FALSE(grad_enabled());
    }
    CHECK(grad_enabled());
    const Tensor x = leaf({2}), s = Tensor::scalar(1, DType::f32, Device{});
    const Tensor loss = sum(x * s);
    fill_(s, 2);
    CHECK(!error_of([&] { backward(loss); }).empty());
    CHECK(grad_enabled());
}

TEST_CASE("BB-065 nothing is recorded under NoGrad, however large the tensor", "[autograd]") {
    for (const std::int64_t n : {100, 1000000}) {
        const Tensor x = require_grad(ones({n}, DType::f32, Device{}));
        const NoGrad scope;
        const auto once = [&] {
            copy_(x, ones({n}, DType::f32, Device{}));
            fill_(x, 2);
            for (const Tensor& y : {x * 2, exp(x), sum(x), softmax(x, 0), reshape(x, {n / 10, 10})})
                CHECK_FALSE(y.requires_grad());
        };
        once();
        const std::int64_t live = pool_statistics().in_use;
        for (int i = 0; i < (n > 1000 ? 3 : 1000); ++i) once();
        CHECK(pool_statistics().in_use == live);
        CHECK(x.requires_grad());
    }
}

TEST_CASE("BB-067 ops that save their own result are freed", "[autograd]") {
    const auto step = [] {
        const Tensor x = leaf({0.1f, 0.2f, 0.3f});
        using Op = Tensor (*)(const Tensor&);
        for (const Op op : {Op(exp), Op(tanh), Op([](const Tensor& t) { return softmax(t, 0); }),
                            Op([](const Tensor& t) { return layer_norm(t); }), Op(sigmoid), Op(sqrt)}) {
            op(x);
            backward(sum(op(x)));
            try {
                backward(sum(gradients(sum(op(x)), {x}, {.create_graph = true})[0]));
            } catch (const Error&) {  // no second order
            }
            zero_grad(x);
        }
    };
    for (int i = 0; i < 10; ++i) step();
    const std::int64_t live = pool_statistics().in_use;
    for (int i = 0; i < 2000; ++i) step();
    CHECK(pool_statistics().in_use == live);
}

TEST_CASE("BB-068 the gradient of a norm at zero is zero", "[autograd]") {
    const Tensor x = leaf({0, 0, 3, 4}, {2, 2});
    backward(sum(norm(x, {1})));
    CHECK(differs(x.grad(), {0, 0, 0.6, 0.8}) == "");
    const Tensor whole = leaf({0, 0});
    backward(norm(whole));
    CHECK(differs(whole.grad(), {0, 0}, exactly) == "");
    const Tensor by_hand = leaf({0, 0, 3, 4}, {2, 2});
    backward(sum(sqrt(sum(square(by_hand), {1}))));
    const Numbers g = by_hand.grad().to_vector<double>();
    CHECK(std::isnan(g[0]));  // 2x / 2√0 is 0 times inf, and the formula says so
    CHECK(differs({g[2], g[3]}, {0.6, 0.8}, six_digits) == "");
}

TEST_CASE("BB-069 subgradients agree with each other", "[autograd]") {
    const auto gradient = [](const Tensor& x, const Tensor& y) {
        zero_grad(x);
        backward(sum(y));
        return x.grad();
    };
    const Tensor x = leaf({0, 6, 3});
    CHECK(differs(gradient(x, relu(x)), {0, 1, 1}, exactly) == "");
    CHECK(differs(gradient(x, clamp(x, 0, 6)), {0, 0, 1}, exactly) == "");
    CHECK(differs(gradient(x, abs(x)), {0, 1, 1}, exactly) == "");
    CHECK(differs(gradient(x, maximum(x, clone(x))), {1, 1, 1}, exactly) == "");
    const Tensor a = leaf({2, 1}), b = leaf({2, 5});
    CHECK(differs(gradient(a, maximum(a, b)), {0.5, 0}, exactly) == "");
    CHECK(differs(gradient(b, maximum(a, b)), {0.5, 1}, exactly) == "");
    CHECK(differs(gradient(a, minimum(a, b)), {0.5, 1}, exactly) == "");
    const Tensor tie = leaf({1, 3, 3});
    CHECK(differs(gradient(tie, max(tie)), {0, 1, 0}, exactly) == "");
    CHECK(differs(gradient(tie, min(-tie)), {0, -1, 0}, exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
