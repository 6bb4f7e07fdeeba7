// Printing: what people know from NumPy and PyTorch.
#include <cmath>
#include <sstream>

#include "gradus/core/tensor.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

TEST_CASE("floats print with four decimals, as wide as the widest", "[core][print]") {
    CHECK(to_string(Tensor::from({1.5f, -2.25f, 10.f}, Device{})) == "tensor([ 1.5000, -2.2500, 10.0000])");
    CHECK(to_string(Tensor::from({1.f, 2.f}, Device{})) == "tensor([1., 2.])");
    CHECK(to_string(Tensor::from({0.1f, NAN, -INFINITY}, Device{})) == "tensor([0.1000,    nan,   -inf])");
    CHECK(to_string(Tensor::from({1e-6f, 1.f}, Device{})) == "tensor([1.0000e-06, 1.0000e+00])");
    CHECK(to_string(Tensor::from({1.5e9f}, Device{})) == "tensor([1.5000e+09])");
    CHECK(to_string(Tensor::scalar(3.25, DType::f32, Device{})) == "tensor(3.2500)");
}

TEST_CASE("dtype and emptiness are told where they are not f32 and full", "[core][print]") {
    CHECK(to_string(Tensor::from({1.0, 2.5}, Device{})) == "tensor([1.0000, 2.5000], f64)");
    CHECK(to_string(Tensor::from({1, -20}, Device{})) == "tensor([  1, -20], i32)");
    CHECK(to_string(Tensor::from({std::int64_t(9007199254740993)}, Device{})) == "tensor([9007199254740993], i64)");
    CHECK(to_string(Tensor::from({true, false}, Device{})) == "tensor([ true, false], bool)");
    CHECK(to_string(Tensor::empty({2, 0}, DType::f32, Device{})) == "tensor([], shape (2, 0))");
    CHECK(to_string(Tensor()) == "tensor(undefined)");
}

TEST_CASE("axes nest, aligned under the first bracket", "[core][print]") {
    CHECK(to_string(Tensor::from({1, 2, 3, 4}, {2, 2}, Device{})) == "tensor([[1, 2],\n        [3, 4]], i32)");
    CHECK(to_string(Tensor::from({1, 2, 3, 4}, {2, 1, 2}, Device{})) == "tensor([[[1, 2]],\n\n        [[3, 4]]], i32)");
}

TEST_CASE("a transposed view prints in logical order", "[core][print]") {
    const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}, Device{});
    CHECK(to_string(x.with_layout(x.layout().permute({1, 0}))) ==
          "tensor([[1, 4],\n        [2, 5],\n        [3, 6]], i32)");
}

TEST_CASE("the middle of a long axis is left out", "[core][print]") {
    std::vector<std::int32_t> many(2000);
    for (int i = 0; i < 2000; ++i) many[std::size_t(i)] = i;
    CHECK(to_string(Tensor::from(many, Device{})) == "tensor([   0,    1,    2, ..., 1997, 1998, 1999], i32)");
    const std::string table = to_string(Tensor::from(many, {1000, 2}, Device{}));
    CHECK(table ==
          "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n"
          "        [1994, 1995],\n        [1996, 1997],\n        [1998, 1999]], i32)");
}

TEST_CASE("a tensor goes into a stream as its text", "[core][print]") {
    std::ostringstream out;
    out << Tensor::from({1, 2}, Device{});
    CHECK(out.str() == "tensor([1, 2], i32)");
}

}  // namespace
}  // namespace gradus::tests
