// Reductions at their edges: nothing to reduce, NaN, infinities, ties, independence of the thread count.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/parallel.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor f32(const std::vector<float>& values) { return Tensor::from(values, Device{}); }
Tensor range(const Shape& shape) { return reshape(arange(shape.product(), DType::f32, Device{}), shape); }
constexpr float nan = NAN, inf = INFINITY;

TEST_CASE("reductions over nothing have their neutral element", "[reduce]") {
    const Tensor none = f32({}), rows = zeros({2, 0}, DType::f32, Device{});
    CHECK(sum(none).item() == 0);
    CHECK(prod(none).item() == 1);
    CHECK(std::isnan(mean(none).item()));
    CHECK(std::isnan(var(none).item()));
    CHECK(logsumexp(none).item() == -inf);
    CHECK(norm(none).item() == 0);
    CHECK(any(zeros({0}, DType::boolean, Device{})).item<int>() == 0);
    CHECK(all(zeros({0}, DType::boolean, Device{})).item<int>() == 1);
    CHECK(differs(sum(rows, {1}), {0, 0}) == "");
    CHECK(sum(rows, {0}).shape() == Shape{0});
    CHECK(max(rows, {0}).shape() == Shape{0});
    CHECK(cumsum(none, 0).shape() == Shape{0});
    CHECK(std::isnan(var(f32({3})).item()));
    CHECK(var(f32({3}), {}, false, false).item() == 0);
}

TEST_CASE("the gradient of a reduction over nothing has its operand's shape", "[reduce]") {
    using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
    for (const auto& [name, op] : {std::pair<const char*, Reduction>("sum", sum),
                                   {"mean", mean},
                                   {"prod", prod},
                                   {"logsumexp", logsumexp},
                                   {"norm", norm}}) {
        INFO(name);
        const Tensor x = require_grad(zeros({3, 0}, DType::f32, Device{}));
        backward(sum(op(x, {1}, false)));
        CHECK(x.grad().shape() == Shape{3, 0});
    }
}

TEST_CASE("NaN propagates, infinities keep their meaning", "[reduce]") {
    CHECK(std::isnan(sum(f32({1, nan})).item()));
    CHECK(std::isnan(mean(f32({1, nan})).item()));
    CHECK(std::isnan(max(f32({nan, 1, 2})).item()));
    CHECK(std::isnan(min(f32({2, 1, nan})).item()));
    CHECK(std::isnan(prod(f32({0, nan})).item()));
    CHECK(std::isnan(logsumexp(f32({nan, 1})).item()));
    CHECK(std::isnan(norm(f32({nan, 1})).item()));
    CHECK(std::isnan(sum(f32({inf, -inf})).item()));
    CHECK(max(f32({-inf, -inf})).item() == -inf);
    CHECK(logsumexp(f32({-inf, -inf})).item() == -inf);
    CHECK(logsumexp(f32({inf, 1})).item() == inf);
    CHECK(differs(logsumexp(f32({1000, 1000})), {1000 + std::log(2.0)}) == "");
    CHECK(differs(logsumexp(f32({-inf, 2})), {2}) == "");
    CHECK(std::isnan(maximum(f32({nan}), f32({1})).item()));
    CHECK(std::isnan(minimum(f32({1}), f32({nan})).item()));
    CHECK(std::isnan(relu(f32({nan})).item()));
    CHECK(std::isnan(clamp(f32({nan}), 0, 1).item()));
    std::vector<float> late(1025, 1);
    for (const std::size_t place :
         {std::size_t(0), std::size_t(15), std::size_t(16), std::size_t(1023), std::size_t(1024)}) {
        std::vector<float> values = late;
        values[place] = nan;
        CHECK(std::isnan(max(f32(values)).item()));
        CHECK(std::isnan(min(f32(values)).item()));
        CHECK(argmax(f32(values), 0).item<std::size_t>() == place);
    }
}

TEST_CASE("the gradient of a product survives zeros", "[reduce]") {
    const auto gradient = [](const std::vector<float>& values) {
        const Tensor x = require_grad(f32(values));
        backward(prod(x));
        return x.grad();
    };
    CHECK(differs(gradient({2, 3, 4}), {12, 8, 6}) == "");
    CHECK(differs(gradient({2, 0, 4}), {0, 8, 0}) == "");
    CHECK(differs(gradient({0, 0, 4}), {0, 0, 0}) == "");
}

TEST_CASE("the gradient of logsumexp is softmax, zero where everything is -inf", "[reduce]") {
    const Tensor x = require_grad(f32({1, 2, 3}));
    backward(logsumexp(x));
    CHECK(differs(x.grad(), softmax(detach(x), 0).to_vector<double>()) == "");
    const Tensor large = require_grad(f32({1000, 1001}));
    backward(logsumexp(large));
    CHECK(differs(large.grad(), {0.268941, 0.731059}, six_digits) == "");
}

TEST_CASE("sums of bool and small integers are taken in i64", "[reduce]") {
    CHECK(sum(ones({300}, DType::boolean, Device{})).item<std::int64_t>() == 300);
    CHECK(sum(full({300}, 255, DType::u8, Device{})).item<std::int64_t>() == 76500);
    const Tensor big = full({4}, 2147483647, DType::i32, Device{});
    CHECK(sum(big).item<std::int64_t>() == 4 * std::int64_t(2147483647));
    CHECK(cumsum(big, 0).to_vector<std::int64_t>()[3] == 4 * std::int64_t(2147483647));
    CHECK(prod(full({3}, 2000000, DType::i32, Device{})).item<std::int64_t>() == 8000000000000000000);
    CHECK(sum(big).dtype() == DType::i64);
    CHECK(max(big).dtype() == DType::i32);
}

TEST_CASE("reductions give the same bits whatever the number of threads", "[reduce][threads]") {
    Generator generator(1);
    const Tensor x = normal({517, 1031}, 0, 1, DType::f32, Device{}, &generator);
    const auto all = [&](int threads) {
        const int before = thread_count();
        set_thread_count(threads);
        std::vector<std::vector<float>> results;
        for (const Tensor& y : {sum(x), sum(x, {0}), sum(x, {1}), mean(x, {0}), var(x, {1}), norm(x), logsumexp(x, {0}),
                                max(x), cumsum(x, 0), softmax(x, -1), layer_norm(x), matmul(x, transpose(x))})
            results.push_back(y.to_vector<float>());
        set_thread_count(before);
        return results;
    };
    const auto one = all(1);
    CHECK(all(2) == one);
    CHECK(all(3) == one);
}

TEST_CASE("all axes at once, named in any order, equal one by one", "[reduce]") {
    const Tensor x = range({2, 3, 4});
    CHECK(sum(x, {2, 0}).to_vector<float>() == sum(sum(x, {2}), {0}).to_vector<float>());
    CHECK(sum(x, {-1, -3}).to_vector<float>() == sum(x, {0, 2}).to_vector<float>());
    CHECK(sum(x).item() == 276);
    CHECK(sum(x, {}, true).shape() == Shape{1, 1, 1});
    CHECK(differs(cumsum(x, 1), cumsum(transpose(x, 1, 2), 2).to_vector<double>()) != "");
    CHECK(differs(transpose(cumsum(transpose(x, 1, 2), 2), 1, 2), cumsum(x, 1).to_vector<double>(), exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
