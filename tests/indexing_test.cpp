// Indexing: padding rows, indices out of range, top k, one-hot.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor f32(const std::vector<float>& values) { return Tensor::from(values, Device{}); }
Tensor ids(const std::vector<std::int64_t>& values) { return Tensor::from(values, Device{}); }
Tensor range(const Shape& shape) { return reshape(arange(shape.product(), DType::f32, Device{}), shape); }

TEST_CASE("BB-131 indices out of range are named with position and bound", "[indexing]") {
    const Tensor table = range({5, 2});
    for (const std::int64_t bad :
         {std::int64_t(5), std::int64_t(-1), std::int64_t(1) << 32, (std::int64_t(1) << 32) + 2}) {
        const std::string wanted = text("index ", bad, " at position (1,) is out of range: expected 0 to 4");
        CHECK(error_of([&] { embedding(ids({0, bad}), table); }) == "embedding: " + wanted);
        CHECK(error_of([&] { index_select(table, 0, ids({0, bad})); }) == "index_select: " + wanted);
        CHECK(error_of([&] { gather(select(table, 1, 0), 0, ids({0, bad})); }) == "gather: " + wanted);
        CHECK(error_of([&] {
                  scatter_add(select(table, 1, 0), 0, ids({0, bad}), f32({1, 1}));
              }) == "scatter_add: " + wanted);
        CHECK(error_of([&] { one_hot(ids({0, bad}), 5); }) == "one_hot: " + wanted);
        CHECK(differs(embedding(ids({4}), table), {8, 9}, exactly) == "");
    }
    std::vector<std::int64_t> many(100000, 1);
    many[70000] = 9;
    many[99999] = 7;
    CHECK(error_of([&] { embedding(ids(many), table); }) ==
          "embedding: index 9 at position (70000,) is out of range: expected 0 to 4");
}

TEST_CASE("the padding row never gets a gradient", "[indexing]") {
    const Tensor table = require_grad(range({4, 2}));
    const Tensor y = embedding(ids({0, 2, 0, 3}), table, 0);
    CHECK(differs(y, {0, 1, 4, 5, 0, 1, 6, 7}, exactly) == "");
    backward(sum(y));
    CHECK(differs(table.grad(), {0, 0, 0, 0, 1, 1, 1, 1}, exactly) == "");
}

TEST_CASE("an index of 32 bits reads as one of 64", "[indexing]") {
    const Tensor table = range({5, 3}), narrow = Tensor::from({4, 0, 3}, Device{}), wide = ids({4, 0, 3});
    CHECK(embedding(narrow, table).to_vector<float>() == embedding(wide, table).to_vector<float>());
    CHECK(index_select(table, 1, Tensor::from({2, 0}, Device{})).to_vector<float>() ==
          index_select(table, 1, ids({2, 0})).to_vector<float>());
    CHECK(one_hot(narrow, 5).to_vector<float>() == one_hot(wide, 5).to_vector<float>());
}

TEST_CASE("topk sorts, keeps the first of equals, and lets the gradient through", "[indexing]") {
    const Tensor x = require_grad(f32({1, 5, 3, 5, 2}));
    const TopK best = topk(x, 3);
    CHECK(differs(best.values, {5, 5, 3}, exactly) == "");
    CHECK(best.indices.to_vector<int>() == std::vector<int>{1, 3, 2});
    backward(sum(best.values * f32({1, 10, 100})));
    CHECK(differs(x.grad(), {0, 1, 100, 10, 0}, exactly) == "");
    const TopK worst = topk(detach(x), 2, 0, false);
    CHECK(worst.indices.to_vector<int>() == std::vector<int>{0, 4});
    CHECK(topk(detach(x), 0).values.shape() == Shape{0});
    const TopK columns = topk(range({3, 2}), 2, 0);
    CHECK(differs(columns.values, {4, 5, 2, 3}, exactly) == "");
    CHECK(columns.indices.to_vector<int>() == std::vector<int>{2, 2, 1, 1});
}

TEST_CASE("one_hot in any dtype", "[indexing]") {
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::boolean}) {
        const Tensor y = one_hot(ids({2, 0}), 3, dtype);
        CHECK(y.dtype() == dtype);
        CHECK(differs(y, {0, 0, 1, 1, 0, 0}, exactly) == "");
    }
}

TEST_CASE("many repeated indices are summed exactly and in f32 for 16-bit floats", "[indexing]") {
    const std::vector<std::int64_t> twos(5000, 2);
    const Tensor table = require_grad(zeros({3, 2}, DType::bf16, Device{}));
    backward(sum(embedding(ids(twos), table)));
    CHECK(differs(table.grad(), {0, 0, 0, 0, 4992, 4992}, exactly) ==
          "");  // 5000 rounded to bf16; a bf16 sum sticks at 256
    const Tensor y = scatter_add(zeros({3}, DType::f16, Device{}), 0, ids(twos), ones({5000}, DType::f16, Device{}));
    CHECK(differs(y, {0, 0, 5000}, exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
