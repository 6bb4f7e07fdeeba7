// Views share their storage, copies do not; creation, casts and writes in place.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor range(const Shape& shape) { return reshape(arange(shape.product(), DType::f32, Device{}), shape); }
bool shared(const Tensor& a, const Tensor& b) { return &a.storage() == &b.storage(); }

TEST_CASE("creation gives the values, shapes and dtypes it says", "[ops]") {
    CHECK(differs(zeros({2, 2}, DType::i32, Device{}), {0, 0, 0, 0}) == "");
    CHECK(differs(ones({2}, DType::boolean, Device{}), {1, 1}) == "");
    CHECK(differs(full({3}, 2.5, DType::bf16, Device{}), {2.5, 2.5, 2.5}) == "");
    CHECK(full({0, 4}, 1, DType::f64, Device{}).shape() == Shape{0, 4});
    const Tensor like = Tensor::from({1.0, 2.0}, Device{});
    CHECK(differs(zeros_like(like), {0, 0}) == "");
    CHECK(differs(ones_like(like), {1, 1}) == "");
    CHECK(differs(full_like(like, -3), {-3, -3}) == "");
    CHECK(full_like(like, 7).dtype() == DType::f64);
    CHECK(differs(arange(0.5, 2.5, 0.5, DType::f64, Device{}), {0.5, 1, 1.5, 2}) == "");
    CHECK(differs(arange(5, 0, -2, DType::i64, Device{}), {5, 3, 1}) == "");
    CHECK(arange(3, 3, 1, DType::f32, Device{}).shape() == Shape{0});
    CHECK(differs(eye(2, 3, DType::f32, Device{}), {1, 0, 0, 0, 1, 0}) == "");
    CHECK(differs(eye(3, 2, DType::i32, Device{}), {1, 0, 0, 1, 0, 0}) == "");
    CHECK(arange(100000, DType::i64, Device{}).to_vector<std::int64_t>()[99999] == 99999);
    CHECK(differs(arange(0, 1 << 24, 1 << 20, DType::f32, Device{}).to_vector<double>(),
                  arange(0, 1 << 24, 1 << 20, DType::f64, Device{}).to_vector<double>(), exactly) == "");
}

TEST_CASE("views move no element", "[views]") {
    const Tensor x = range({2, 3, 4});
    for (const Tensor& y :
         {view(x, {6, 4}), reshape(x, {24}), permute(x, {2, 0, 1}), transpose(x), slice(x, 1, 0, 2), select(x, 0, 1),
          expand(x, {5, 2, 3, 4}), squeeze(unsqueeze(x, 0)), flatten(x), split(x, 2)[1], chunk(x, 2, 2)[0], detach(x)})
        CHECK(shared(x, y));
    CHECK(contiguous(x).identity() == x.identity());
    CHECK(to(x, Device{}).identity() == x.identity());
    CHECK(cast(x, DType::f32).identity() == x.identity());
    for (const Tensor& y : {clone(x), contiguous(transpose(x)), cat({x}), flip(x, {0}), repeat(x, {1, 1, 1}),
                            pad(x, {0, 0, 0}, {0, 0, 0}), reshape(transpose(x), {24})})
        CHECK_FALSE(shared(x, y));
    CHECK(clone(expand(x, {5, 2, 3, 4})).is_contiguous());
}

TEST_CASE("a write through a view is seen by the base and by its other views", "[views]") {
    const Tensor x = range({2, 3});
    const Tensor row = select(x, 0, 1), column = select(x, 1, 2);
    const std::uint32_t version = x.version();
    fill_(row, -1);
    CHECK(differs(x, {0, 1, 2, -1, -1, -1}, exactly) == "");
    CHECK(differs(column, {2, -1}, exactly) == "");
    CHECK(x.version() == version + 1);
    copy_(column, Tensor::from({7, 8}, Device{}));
    CHECK(differs(x, {0, 1, 7, -1, -1, 8}, exactly) == "");
    copy_(x, Tensor::from({1.0, 2.0, 3.0}, Device{}));  // stretched and cast
    CHECK(differs(x, {1, 2, 3, 1, 2, 3}, exactly) == "");
    const Tensor y = range({3, 3});
    copy_(y, transpose(y));  // source and destination overlap
    CHECK(differs(y, {0, 3, 6, 1, 4, 7, 2, 5, 8}, exactly) == "");
}

TEST_CASE("split is balanced, chunk takes whole pieces", "[views]") {
    const auto sizes = [](const std::vector<Tensor>& parts) {
        std::vector<std::int64_t> all;
        for (const Tensor& part : parts) all.push_back(part.numel());
        return all;
    };
    using Sizes = std::vector<std::int64_t>;
    CHECK(sizes(split(range({9}), 4)) == Sizes{3, 2, 2, 2});
    CHECK(sizes(split(range({3}), 4)) == Sizes{1, 1, 1, 0});
    CHECK(sizes(chunk(range({9}), 4)) == Sizes{3, 3, 3});
    CHECK(sizes(chunk(range({36}), 7)) == Sizes{6, 6, 6, 6, 6, 6});
    CHECK(sizes(chunk(range({50}), 8)) == Sizes{7, 7, 7, 7, 7, 7, 7, 1});
    CHECK(sizes(chunk(range({0}), 3)) == Sizes{0});
}

TEST_CASE("a slice clamps its bounds as Python does", "[views]") {
    const Tensor x = range({5});
    CHECK(differs(slice(x, 0, -2, 100), {3, 4}, exactly) == "");
    CHECK(differs(slice(x, 0, -100, 2), {0, 1}, exactly) == "");
    CHECK(differs(slice(x, 0, 1, -1), {1, 2, 3}, exactly) == "");
    CHECK(slice(x, 0, 4, 1).numel() == 0);
    CHECK(slice(x, 0, 9, 12).numel() == 0);
    CHECK(differs(slice(x, 0, 0, 5, 3), {0, 3}, exactly) == "");
    CHECK(differs(slice(slice(x, 0, 1, 5), 0, 1, 4, 2), {2, 4}, exactly) == "");
}

TEST_CASE("casts truncate, round and keep what they can", "[ops]") {
    const Tensor x = Tensor::from({-1.9f, -0.5f, 0.f, 0.5f, 1.9f, 300.f}, Device{});
    CHECK(differs(cast(x, DType::i32), {-1, 0, 0, 0, 1, 300}) == "");
    CHECK(differs(cast(x, DType::i64), {-1, 0, 0, 0, 1, 300}) == "");
    CHECK(differs(cast(x, DType::boolean), {1, 1, 0, 1, 1, 1}) == "");
    CHECK(differs(cast(Tensor::from({float(NAN)}, Device{}), DType::boolean), {1}) == "");
    CHECK(cast(Tensor::from({65519.f, 65520.f}, Device{}), DType::f16).to_vector<float>() ==
          std::vector<float>{65504, INFINITY});
    CHECK(cast(Tensor::from({1.0 + 0x1p-24}, Device{}), DType::f32).item() == 1);
    const std::int64_t large = (std::int64_t(1) << 53) + 1;
    CHECK(cast(Tensor::from({large}, Device{}), DType::i64).item<std::int64_t>() == large);
    // Every dtype to every other and back keeps small integers.
    for (int a = 0; a < 8; ++a)
        for (int b = 0; b < 8; ++b) {
            const Tensor from = cast(Tensor::from({0, 1}, Device{}), DType(a));
            CHECK(differs(cast(cast(from, DType(b)), DType(a)), {0, 1}, exactly) == "");
        }
    const Tensor leaf = require_grad(Tensor::from({1.5, 2.5}, Device{}));
    backward(sum(cast(leaf, DType::f32)));
    CHECK(leaf.grad().dtype() == DType::f64);
}

TEST_CASE("dtypes meet as the rules say, 0-d tensors and host numbers do not raise them", "[ops]") {
    const auto of = [](DType type, const Shape& shape = {2}) { return ones(shape, type, Device{}); };
    const auto meet = [&](DType a, const Shape& a_shape, DType b, const Shape& b_shape) {
        return add(of(a, a_shape), of(b, b_shape)).dtype();
    };
    CHECK(meet(DType::f32, {2}, DType::f64, {2}) == DType::f64);
    CHECK(meet(DType::f32, {2}, DType::f64, {1}) == DType::f64);
    CHECK(meet(DType::f32, {2}, DType::f64, {}) == DType::f32);
    CHECK(meet(DType::i64, {2}, DType::f32, {}) == DType::f32);
    CHECK(meet(DType::i32, {2}, DType::i64, {}) == DType::i32);
    CHECK(meet(DType::f16, {2}, DType::bf16, {2}) == DType::f32);
    CHECK(meet(DType::i64, {2}, DType::f16, {2}) == DType::f16);
    CHECK(meet(DType::boolean, {2}, DType::u8, {2}) == DType::u8);
    CHECK(mul(of(DType::i64), 2.0).dtype() == DType::i64);
    CHECK(mul(of(DType::i64), 2.5).dtype() == DType::f32);
    CHECK(mul(of(DType::bf16), 2.5).dtype() == DType::bf16);
    CHECK(div(of(DType::i64), of(DType::i32)).dtype() == DType::f32);
    CHECK(differs(div(Tensor::from({1, 2}, Device{}), 4), {0.25, 0.5}) == "");
    CHECK(exp(of(DType::i64)).dtype() == DType::f32);
}

TEST_CASE("integers wrap nowhere near their range and keep all their digits", "[ops]") {
    const std::int64_t large = (std::int64_t(1) << 60) + 1;
    const Tensor x = Tensor::from({large, -large}, Device{});
    CHECK((x + 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{large + 1, -large + 1});
    CHECK((x - x).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
    CHECK(sum(x).item<std::int64_t>() == 0);
    CHECK(max(x).item<std::int64_t>() == large);
    CHECK(maximum(x, neg(x)).to_vector<std::int64_t>() == std::vector<std::int64_t>{large, large});
    CHECK(equal(x, x + 1).to_vector<int>() == std::vector<int>{0, 0});
    CHECK(neg(x).to_vector<std::int64_t>() == std::vector<std::int64_t>{-large, large});
}

TEST_CASE("eight axes go through views and ops", "[views]") {
    const Tensor x = range({2, 1, 2, 1, 2, 1, 2, 2});
    const Tensor y = permute(x, {7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(y.shape() == Shape{2, 2, 1, 2, 1, 2, 1, 2});
    CHECK(differs(y + y, mul(y, 2).to_vector<double>()) == "");
    CHECK(sum(y, {0, 2, 4}).rank() == 5);
    CHECK(error_of([&] { unsqueeze(x, 0); }) == "shape: a rank above the limit of 8 would result");
}

}  // namespace
}  // namespace gradus::tests
