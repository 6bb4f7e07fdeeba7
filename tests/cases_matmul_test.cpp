// Public bug reports of other systems, sections D and E of cases.md: products and normalisation.
#include <cmath>

#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using Numbers = std::vector<double>;

Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return require_grad(Tensor::from(values, shape, Device{}));
}
Tensor ones_leaf(const Shape& shape) { return require_grad(ones(shape, DType::f32, Device{})); }

/// Leaves blocks full of NaN in the pool, where the next result of that size will be put.
void dirty(const Shape& shape) {
    std::vector<Tensor> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(full(shape, NAN, DType::f32, Device{}));
}

TEST_CASE("BB-033 an inner size of 0 gives zeros, not what memory held", "[matmul]") {
    const Tensor a = leaf({}, {2, 0}), b = leaf({}, {0, 3});
    dirty({2, 3});
    const Tensor y = matmul(a, b);
    CHECK(differs(y, Numbers(6, 0), exactly) == "");
    backward(sum(y));
    CHECK(a.grad().shape() == Shape{2, 0});
    CHECK(b.grad().shape() == Shape{0, 3});
}

TEST_CASE("BB-034 an inner size of 0 in a batch and in a linear layer", "[matmul]") {
    dirty({3, 2, 3});
    CHECK(differs(matmul(leaf({}, {3, 2, 0}), leaf({}, {3, 0, 3})), Numbers(18, 0), exactly) == "");
    const Tensor bias = leaf({1, 2, 3, 4}, {4});
    dirty({5, 4});
    const Tensor y = linear(leaf({}, {5, 0}), leaf({}, {4, 0}), bias);
    Numbers rows;
    for (int i = 0; i < 5; ++i) rows.insert(rows.end(), {1, 2, 3, 4});
    CHECK(differs(y, rows, exactly) == "");
    backward(sum(y));
    CHECK(differs(bias.grad(), {5, 5, 5, 5}, exactly) == "");
}

TEST_CASE("BB-035 NaN in the output's memory does not survive", "[matmul]") {
    const auto one = [](const Shape& shape) { return ones(shape, DType::f32, Device{}); };
    dirty({17, 19});
    CHECK(differs(matmul(one({17, 23}), one({23, 19})), Numbers(17 * 19, 23), exactly) == "");
    dirty({3, 17, 19});
    CHECK(differs(matmul(one({3, 17, 23}), one({3, 23, 19})), Numbers(3 * 17 * 19, 23), exactly) == "");
    dirty({17, 19});
    CHECK(differs(linear(one({17, 23}), one({19, 23})), Numbers(17 * 19, 23), exactly) == "");
}

TEST_CASE("BB-036 batch axes broadcast, and their gradients are summed", "[matmul]") {
    const Tensor a = ones_leaf({4, 3}), b = ones_leaf({1, 3, 3, 3});
    const Tensor y = matmul(a, b);
    CHECK(y.shape() == Shape{1, 3, 4, 3});
    CHECK(differs(y, Numbers(36, 3), exactly) == "");
    backward(sum(y));
    CHECK(a.grad().shape() == Shape{4, 3});
    CHECK(differs(a.grad(), Numbers(12, 9), exactly) == "");
    CHECK(differs(b.grad(), Numbers(27, 4), exactly) == "");
}

TEST_CASE("BB-038 operands of stride 0 and of stride 1 twice", "[matmul]") {
    const Tensor a = leaf({1, 2}, {1, 2}), b = leaf({3, 4}, {2, 1});
    const Tensor y = matmul(a, expand(b, {2, 2}));
    CHECK(differs(y, {11, 11}, exactly) == "");
    backward(sum(y));
    CHECK(differs(a.grad(), {6, 8}, exactly) == "");
    CHECK(differs(b.grad(), {2, 4}, exactly) == "");
    const Tensor five = arange(5, DType::f32, Device{});
    const Tensor row = five.with_layout(Layout({1, 5}, {1, 1}, 0)),
                 column = five.with_layout(Layout({5, 1}, {1, 1}, 0));
    CHECK(differs(matmul(row, column), {30}, exactly) == "");
    CHECK(differs(select(matmul(column, row), 0, 4), {0, 4, 8, 12, 16}, exactly) == "");
}

TEST_CASE("BB-039 a slice of columns as an operand", "[matmul]") {
    const Tensor x = slice(reshape(arange(12, DType::f32, Device{}), {3, 4}), 1, 1, 3);
    const Tensor identity = eye(2, DType::f32, Device{});
    CHECK(differs(matmul(x, identity), {1, 2, 5, 6, 9, 10}, exactly) == "");
    CHECK(differs(matmul(identity, transpose(x)), {1, 5, 9, 2, 6, 10}, exactly) == "");
    CHECK(differs(matmul(eye(3, DType::f32, Device{}), x), {1, 2, 5, 6, 9, 10}, exactly) == "");
    CHECK(differs(matmul(transpose(x), eye(3, DType::f32, Device{})), {1, 5, 9, 2, 6, 10}, exactly) == "");
}

TEST_CASE("BB-041 a batch above 65,535", "[matmul]") {
    const std::int64_t n = 70000;
    const Tensor a = ones_leaf({n, 2, 3}), b = ones_leaf({n, 3, 1});
    const Tensor y = matmul(a, b);
    CHECK(differs(y, Numbers(std::size_t(n) * 2, 3), exactly) == "");
    backward(sum(y));
    CHECK(differs(b.grad(), Numbers(std::size_t(n) * 3, 2), exactly) == "");
}

TEST_CASE("BB-042 layer norm of a large mean and a small spread", "[norms]") {
    for (const float offset : {0.f, 40000.f, -40000.f}) {
        const Tensor x = Tensor::from({offset, offset + 1, offset + 2, offset + 3}, {1, 4}, Device{});
        CHECK(differs(layer_norm(x), {-1.341635, -0.447212, 0.447212, 1.341635}, three_digits) == "");
    }
    std::vector<float> narrow;
    for (int i = 0; i < 16; ++i) narrow.push_back(1448.8f + 1.9f * float(i) / 15);
    const Numbers y = layer_norm(Tensor::from(narrow, {1, 16}, Device{})).to_vector<double>();
    CHECK(std::abs(reference::mean(y)) < three_digits.absolute);
    CHECK(std::abs(reference::variance(y, 0) - 1) < three_digits.absolute);
}

TEST_CASE("BB-043 layer norm of a constant row", "[norms]") {
    for (const float value : {1234.f, 0.1f, 1e-30f, 3e4f}) {
        const Tensor x = leaf(std::vector<float>(256, value), {1, 256});
        const Tensor w = leaf(std::vector<float>(256, 2), {256}), b = leaf(std::vector<float>(256, 0.5f), {256});
        const Tensor y = layer_norm(x, w, b);
        CHECK(differs(y, Numbers(256, 0.5), three_digits) == "");
        backward(sum(y));
        for (const Tensor& t : {x, w, b})
            for (const double g : t.grad().to_vector<double>()) CHECK(std::isfinite(g));
    }
}

TEST_CASE("BB-045 eps stands inside the root", "[norms]") {
    const Tensor x = Tensor::from({0.001f, -0.001f}, {1, 2}, Device{});
    CHECK(differs(layer_norm(x), {0.301511, -0.301511}, six_digits) == "");
    CHECK(differs(rms_norm(x), {0.301511, -0.301511}, six_digits) == "");
}

TEST_CASE("BB-047 every fused op has a gradient", "[norms][autograd]") {
    const auto x = [](const Sizes& shape, std::uint64_t salt) { return draw(number(), shape, DType::f64, salt); };
    const Tensor seen = draw(mask(), {3, 4}, DType::boolean, 5), targets = draw(indices(4), {3}, DType::i64, 6);
    using Op = CheckedFunction;
    gradcheck([](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); }, {x({3, 4}, 1), x({4}, 2), x({4}, 3)});
    gradcheck([](const Tensors& t) { return rms_norm(t[0], t[1]); }, {x({3, 4}, 1), x({4}, 2)});
    for (const Op& op : {Op([](const Tensors& t) { return softmax(t[0], -1); }),
                         Op([](const Tensors& t) { return log_softmax(t[0], -1); }),
                         Op([&](const Tensors& t) { return masked_softmax(t[0], seen, -1); }),
                         Op([&](const Tensors& t) { return cross_entropy(t[0], targets); }),
                         Op([](const Tensors& t) { return gelu(t[0]); }), Op([](const Tensors& t) {
                             Generator generator(2);
                             return add(dropout(t[0], 0.4, true, &generator), t[0]);
                         })})
        gradcheck(op, {x({3, 4}, 1)});
    gradcheck([](const Tensors& t) { return linear(t[0], t[1], t[2]); }, {x({3, 4}, 1), x({2, 4}, 2), x({2}, 3)});
    gradcheck([](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2]); },
              {x({1, 2, 3, 2}, 1), x({1, 2, 4, 2}, 2), x({1, 2, 4, 3}, 3)});
    gradcheck([&](const Tensors& t) { return embedding(targets, t[0]); }, {x({4, 3}, 1)});
}

TEST_CASE("BB-048 the second derivative of layer norm is right, or refused", "[norms][autograd]") {
    const Tensor t = require_grad(Tensor::from({0.3}, {1}, Device{}));
    const Tensor x = cat({t, zeros({1}, DType::f64, Device{})});
    const Tensor f = sum(layer_norm(x, Tensor::from({1.0, 2.0}, Device{}), zeros({2}, DType::f64, Device{}), 0.25));
    CHECK(differs(f, {-0.287348}, six_digits) == "");
    CHECK(differs(gradients(f, {t}, {.retain_graph = true})[0], {-0.878740}, six_digits) == "");
    std::string refusal;
    try {
        const Tensor slope = gradients(f, {t}, {.retain_graph = true, .create_graph = true})[0];
        CHECK(differs(gradients(sum(slope), {t})[0], {0.725565}, six_digits) == "");
    } catch (const Error& error) {
        refusal = error.what();
    }
    if (!refusal.empty()) CHECK(contains(refusal, "cannot be differentiated again"));
}

}  // namespace
}  // namespace gradus::tests
