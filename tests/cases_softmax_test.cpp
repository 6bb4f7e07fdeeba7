// Public bug reports of other systems, sections A and B of cases.md: softmax, masks, masked_fill.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

const float inf = INFINITY;
using Numbers = std::vector<double>;

Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return require_grad(Tensor::from(values, shape, Device{}));
}

AttentionOptions seen_by(const Tensor& mask, bool causal = false) {
    AttentionOptions options;
    options.mask = mask;
    options.causal = causal;
    return options;
}

TEST_CASE("BB-001 a fully masked attention row gives zeros and zero gradient", "[softmax]") {
    const Tensor q = leaf({0, 0, 0}, {1, 1, 3, 1}), k = leaf({0, 0, 0}, {1, 1, 3, 1}),
                 v = leaf({10, 20, 40}, {1, 1, 3, 1});
    const Tensor mask = Tensor::from({false, true, true}, {1, 1, 1, 3}, Device{});
    const Tensor y = scaled_dot_product_attention(q, k, v, seen_by(mask, true));
    CHECK(differs(y, {0, 20, 30}) == "");
    backward(sum(y));
    CHECK(differs(v.grad(), {0, 1.5, 0.5}) == "");
    for (const Tensor& x : {q, k}) CHECK(differs(x.grad(), {0, 0, 0}) == "");

    // Rows that see nothing stay clean where the values nobody sees are NaN, below and above the size of a block.
    for (const std::int64_t n : {3, 70}) {
        const Tensor queries = require_grad(ones({1, 2, n, 8}, DType::f32, Device{})),
                     nan = require_grad(full({1, 2, n, 8}, NAN, DType::f32, Device{}));
        const Tensor nothing = full({n, n}, 0, DType::boolean, Device{});
        backward(sum(scaled_dot_product_attention(queries, queries, nan, seen_by(nothing))));
        for (const Tensor& x : {queries, nan})
            CHECK(x.grad().to_vector<double>() == std::vector<double>(std::size_t(2 * n * 8), 0));
    }

    // The same by hand: masked_softmax, then the product.
    const Tensor scores = leaf(std::vector<float>(9), {3, 3});
    const Tensor visible = logical_and(tril(cast(ones({3, 3}, DType::f32, Device{}), DType::boolean)), mask);
    const Tensor weights = masked_softmax(scores, reshape(visible, {3, 3}), -1);
    CHECK(differs(weights, {0, 0, 0, 0, 1, 0, 0, 0.5, 0.5}) == "");
    backward(sum(square(weights)));
    CHECK(differs(slice(scores.grad(), 0, 0, 1), {0, 0, 0}) == "");
}

TEST_CASE("BB-003 a row that is all -inf does not touch the other rows of log_softmax", "[softmax]") {
    const Tensor x = leaf({0.3f, 0.5f, 0.2f, -inf, -inf, -inf}, {2, 3});
    const Tensor y = log_softmax(x, -1), first = select(y, 0, 0);
    CHECK(differs(sum(exp(first)), {1}) == "");
    backward(sum(first));
    const Numbers p = reference::softmax({0.3, 0.5, 0.2});
    CHECK(differs(select(x.grad(), 0, 0), {1 - 3 * p[0], 1 - 3 * p[1], 1 - 3 * p[2]}, six_digits) == "");
    for (const float v : select(softmax(x, -1), 0, 1).to_vector<float>()) CHECK(std::isnan(v));
}

TEST_CASE("BB-004 softmax of a transposed view normalises logical rows", "[softmax]") {
    const Tensor a = Tensor::from({0.f, 2.f, 4.f, 6.f, 1.f, 3.f, 5.f, 7.f, 3.f, 5.f, 7.f, 9.f}, {3, 4}, Device{});
    const Tensor y = softmax(transpose(a), 1);
    Numbers expected;
    for (int i = 0; i < 4; ++i) expected.insert(expected.end(), {0.0420101, 0.114195, 0.843795});
    CHECK(differs(y, expected, six_digits) == "");
    CHECK(differs(softmax(a, 0), transpose(y).to_vector<double>()) == "");
}

TEST_CASE("BB-008 tall and thin inputs", "[softmax]") {
    const Tensor x = ones({70000, 1}, DType::f32, Device{});
    CHECK(differs(softmax(x, -1), Numbers(70000, 1), exactly) == "");
    CHECK(differs(log_softmax(x, -1), Numbers(70000, 0), exactly) == "");
    CHECK(differs(softmax(ones({20000, 9}, DType::f32, Device{}), -1), Numbers(180000, 1.0 / 9)) == "");
}

TEST_CASE("BB-009 empty tensors go through every kernel, forward and backward", "[softmax]") {
    for (const Shape& shape : {Shape{0, 2}, Shape{3, 0}, Shape{0}}) {
        INFO(to_string(shape));
        const Tensor mask = zeros(shape, DType::boolean, Device{});
        using Op = std::function<Tensor(const Tensor&)>;
        const std::vector<std::pair<const char*, Op>> ops = {
            {"softmax", [](const Tensor& x) { return softmax(x, -1); }},
            {"log_softmax", [](const Tensor& x) { return log_softmax(x, -1); }},
            {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
            {"masked_fill", [&](const Tensor& x) { return masked_fill(x, mask, 1); }},
            {"sum", [](const Tensor& x) { return sum(x); }},
            {"mean", [](const Tensor& x) { return mean(x); }},
            {"to", [](const Tensor& x) { return to(x, Device{}); }},
            {"transpose and copy", [](const Tensor& x) { return x.rank() == 2 ? contiguous(transpose(x)) : clone(x); }},
            {"matmul", [](const Tensor& x) { return x.rank() == 2 ? matmul(x, transpose(x)) : matmul(x, x); }},
        };
        for (const auto& [name, op] : ops) {
            INFO(name);
            const Tensor x = leaf({}, shape);
            const Tensor y = op(x);
            if (std::string(name) == "sum") CHECK(y.item() == 0);
            if (std::string(name) == "mean") CHECK(std::isnan(y.item()));
            backward(sum(y));
            CHECK(x.grad().shape() == shape);
        }
    }
    const Tensor table = leaf({1, 2, 3, 4}, {2, 2});
    const Tensor rows = embedding(Tensor::from(std::vector<std::int64_t>(), {0, 3}, Device{}), table);
    CHECK(rows.shape() == Shape{0, 3, 2});
    backward(sum(rows));
    CHECK(differs(table.grad(), {0, 0, 0, 0}) == "");
    CHECK(differs(add(ones({2}, DType::f32, Device{}), 1), {2, 2}) == "");
}

TEST_CASE("BB-010 lowest finite numbers as an additive mask do not turn to NaN", "[softmax]") {
    const auto half = [](double value, const Shape& shape) { return full(shape, value, DType::f16, Device{}); };
    for (const double score : {-15.9, -16.0, -1000.0}) {
        AttentionOptions options;
        options.additive_mask = half(-65504, {1, 1, 1, 4});
        options.scale = 1;
        const Tensor y = scaled_dot_product_attention(half(1, {1, 1, 1, 1}), half(score, {1, 1, 4, 1}),
                                                      half(3, {1, 1, 4, 1}), options);
        CHECK(differs(y, {3}) == "");  // every key equally, whatever is added to all of them
        options.additive_mask = half(-INFINITY, {1, 1, 1, 4});
        CHECK(differs(scaled_dot_product_attention(half(1, {1, 1, 1, 1}), half(score, {1, 1, 4, 1}),
                                                   half(3, {1, 1, 4, 1}), options),
                      {0}) == "");
    }
}

TEST_CASE("BB-011 a fill value that f16 cannot hold is refused, an infinity is not", "[softmax]") {
    const Tensor scores = full({2, 2}, -3, DType::f16, Device{});
    const Tensor mask = Tensor::from({false, true, true, false}, {2, 2}, Device{});
    CHECK(error_of([&] { masked_fill(scores, mask, -1e10); }) ==
          "masked_fill: the value -1e+10 does not fit into f16: its range is [-65504, 65504], or use an infinity");
    CHECK(differs(softmax(masked_fill(scores, mask, -INFINITY), -1), {1, 0, 0, 1}, exactly) == "");
}

TEST_CASE("BB-012 a padding mask hides keys, not queries", "[softmax]") {
    const auto run = [](float padding, std::int64_t length) {
        const std::vector<float> all = {0.3f, -0.7f, 1.1f, 0.4f, padding, 2 * padding, -padding, padding};
        const Tensor x = slice(Tensor::from(all, {1, 1, 4, 2}, Device{}), 2, 0, length);
        const Tensor ids = slice(Tensor::from({5, 7, 0, 0}, {1, 1, 1, 4}, Device{}), 3, 0, length);
        return slice(scaled_dot_product_attention(x, x, x, seen_by(not_equal(ids, 0))), 2, 0, 2).to_vector<double>();
    };
    const Numbers alone = run(0, 2);
    CHECK(differs(run(0.5f, 4), alone, tolerance(DType::f32)) == "");
    CHECK(differs(run(1e4f, 4), run(-77, 4), exactly) == "");
}

TEST_CASE("BB-014 a byte is no mask", "[softmax]") {
    const Tensor x = Tensor::from({3.f, 4.f}, Device{}),
                 bytes = Tensor::from(std::vector<std::uint8_t>{1, 0}, Device{});
    CHECK(contains(error_of([&] { masked_fill(x, bytes, 0); }), "u8"));
    CHECK(contains(error_of([&] { logical_not(bytes); }), "u8"));
    const Tensor mask = cast(bytes, DType::boolean);
    CHECK(differs(masked_fill(x, logical_not(mask), 0), {3, 0}) == "");
}

TEST_CASE("BB-015 a bool mask and an additive one mean the same, a float 0/1 mask is refused", "[softmax]") {
    const Tensor q = Tensor::from({0.5f, -1.f}, {1, 1, 2, 1}, Device{}),
                 v = Tensor::from({1.f, 5.f}, {1, 1, 2, 1}, Device{});
    const Tensor visible = Tensor::from({false, true}, {1, 1, 1, 2}, Device{});
    AttentionOptions added;
    added.additive_mask = Tensor::from({-inf, 0.f}, {1, 1, 1, 2}, Device{});
    const Tensor y = scaled_dot_product_attention(q, q, v, seen_by(visible));
    CHECK(differs(y, {5, 5}) == "");
    CHECK(differs(scaled_dot_product_attention(q, q, v, added), y.to_vector<double>()) == "");
    CHECK(contains(error_of([&] {
                       scaled_dot_product_attention(q, q, v, seen_by(Tensor::from({0.f, 1.f}, {1, 1, 1, 2}, Device{})));
                   }),
                   "f32"));
}

TEST_CASE("BB-016 writes into an expanded tensor are refused", "[masked_fill]") {
    const Tensor x = Tensor::from({5.f, 8.f}, {2, 1}, Device{}), wide = expand(x, {2, 3});
    const Tensor mask = Tensor::from({false, false, true, false, false, false}, {2, 3}, Device{});
    CHECK(differs(masked_fill(wide, mask, 9), {5, 5, 9, 8, 8, 8}) == "");
    CHECK(contains(error_of([&] { fill_(wide, 9); }), "expanded"));
    CHECK(contains(error_of([&] { copy_(wide, ones({2, 3}, DType::f32, Device{})); }), "expanded"));
    CHECK(differs(x, {5, 8}) == "");
}

TEST_CASE("BB-018 masked_fill's gradient selects, it does not multiply", "[masked_fill]") {
    for (const float g : {inf, float(NAN)}) {
        const Tensor x = leaf({0, 100}, {2});
        backward(masked_fill(x, Tensor::from({false, true}, Device{}), 0), Tensor::from({1.f, g}, Device{}));
        CHECK(differs(x.grad(), {1, 0}, exactly) == "");
    }
    const Tensor x = leaf({0, 100}, {2});
    const Tensor y = masked_fill(log(1 + exp(x)), Tensor::from({false, true}, Device{}), 0);
    CHECK(differs(y, {std::log(2.0), 0}) == "");
    backward(sum(y));
    CHECK(x.grad().to_vector<float>()[0] == 0.5f);  // the other element: 0 times the inf of exp, as the formula says
    const Tensor safe = leaf({0, 100}, {2});
    backward(sum(softplus(safe)));
    CHECK(differs(safe.grad(), {0.5, 1}) == "");
}

TEST_CASE("BB-019 gradients flow around a bool mask, each of its operand's shape", "[masked_fill]") {
    const Tensor mask = Tensor::from({false, true, true}, Device{});
    const Tensor a = leaf({4, 5, 6}, {3}), b = leaf({1, 2, 3}, {3});
    backward(sum(masked_fill(a, logical_not(mask), 0)));
    CHECK(differs(a.grad(), {0, 1, 1}, exactly) == "");
    zero_grad(a);
    backward(sum(where(mask, a, b)));
    CHECK(differs(a.grad(), {0, 1, 1}, exactly) == "");
    CHECK(differs(b.grad(), {1, 0, 0}, exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
