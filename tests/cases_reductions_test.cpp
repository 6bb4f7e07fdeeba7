// Public bug reports of other systems, sections G and H of cases.md: reductions, views and copies.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using Numbers = std::vector<double>;

Tensor range(const Shape& shape) { return reshape(arange(shape.product(), DType::f32, Device{}), shape); }

TEST_CASE("BB-070 f32 sums go beyond 2^24", "[reduce][slow]") {
    const std::int64_t n = std::int64_t(1) << 25;
    {
        const Tensor x = ones({n, 2}, DType::f32, Device{});
        CHECK(differs(sum(x, {0}), {33554432, 33554432}, exactly) == "");
        CHECK(differs(mean(x, {0}), {1, 1}, exactly) == "");
    }
    CHECK(differs(sum(ones({n}, DType::f32, Device{})), {33554432}, exactly) == "");
    const double tenths = sum(full({1000000}, 0.1, DType::f32, Device{})).item();
    CHECK(std::abs(tenths - 100000) < 0.5);
}

TEST_CASE("BB-071 column sums over twenty million rows", "[reduce][slow]") {
    const std::int64_t n = 20000000;
    {
        const Tensor w = require_grad(ones({3, 1}, DType::f32, Device{})),
                     b = require_grad(zeros({3}, DType::f32, Device{}));
        backward(sum(linear(ones({n, 1}, DType::f32, Device{}), w, b)));
        CHECK(differs(b.grad(), Numbers(3, 2e7), exactly) == "");
        CHECK(differs(w.grad(), Numbers(3, 2e7), exactly) == "");
    }
    release_cached();
    const Tensor w = require_grad(ones({3}, DType::f32, Device{})), b = require_grad(zeros({3}, DType::f32, Device{}));
    backward(sum(layer_norm(expand(range({3}), {n, 3}), w, b)));
    CHECK(differs(b.grad(), Numbers(3, 2e7), exactly) == "");
    release_cached();
}

TEST_CASE("BB-072 sums of 16-bit floats are kept wider", "[reduce]") {
    CHECK(mean(ones({70000}, DType::bf16, Device{})).item() == 1);
    CHECK(mean(full({1000}, 100, DType::f16, Device{})).item() == 100);
    const Tensor large = cat({full({4}, 32000, DType::f16, Device{}), full({4}, -32000, DType::f16, Device{})});
    CHECK(sum(large).item() == 0);
    CHECK(differs(softmax(zeros({512}, DType::bf16, Device{}), 0), Numbers(512, 1.0 / 512), exactly) == "");
    CHECK(differs(norm(full({4}, 200, DType::f16, Device{})), {400}, exactly) == "");
}

TEST_CASE("BB-073 reductions of permuted views", "[reduce]") {
    const Tensor x = range({33, 256}), y = transpose(x);
    CHECK(std::abs(sum(y).item() / 35680128 - 1) < 1e-6);
    CHECK(max(y).item() == 8447);
    CHECK(min(y).item() == 0);
    CHECK(sum(y, {0}).to_vector<float>() == sum(x, {1}).to_vector<float>());
    CHECK(differs(sum(y, {1}), sum(x, {0}).to_vector<double>()) == "");
    CHECK(argmax(y, 0).to_vector<int>() == argmax(x, 1).to_vector<int>());
    CHECK(max(y, {1}).to_vector<float>() == max(x, {0}).to_vector<float>());
}

TEST_CASE("BB-074 argmax: the first of equals, the first NaN", "[reduce]") {
    const auto place = [](const std::vector<float>& values) {
        return argmax(Tensor::from(values, Device{}), 0).item<std::int64_t>();
    };
    const float nan = NAN;
    CHECK(place(std::vector<float>(16, 2)) == 0);
    CHECK(place({1, nan, 3}) == 1);
    CHECK(place(std::vector<float>(58, nan)) == 0);
    CHECK(place({3, 1, nan, nan}) == 2);
    std::vector<float> late(100, 0);
    late[97] = nan;
    late[99] = 5;
    CHECK(place(late) == 97);
    CHECK(argmin(Tensor::from(late, Device{}), 0).item<std::int64_t>() == 97);
    CHECK(argmax(Tensor::from(std::vector<float>(16, -INFINITY), Device{}), 0).item<std::int64_t>() == 0);
    CHECK(std::isnan(max(Tensor::from({1.f, nan, 3.f}, Device{})).item()));
    CHECK(std::isnan(min(Tensor::from({1.f, nan, 3.f}, Device{})).item()));
}

TEST_CASE("BB-076 a reshape after a permutation keeps logical order", "[views]") {
    CHECK(differs(reshape(transpose(Tensor::from({5.f, 6.f, 7.f, 8.f}, {2, 2}, Device{})), {2, 2}), {5, 7, 6, 8},
                  exactly) == "");
    const Tensor x = transpose(range({2, 4}));
    const Numbers logical = {0, 4, 1, 5, 2, 6, 3, 7};
    CHECK(differs(reshape(x, {8}), logical, exactly) == "");
    CHECK(differs(reshape(reshape(x, {8}), {4, 2}), logical, exactly) == "");
}

TEST_CASE("BB-078 a view that would need a copy is refused, a reshape makes it", "[views]") {
    const Tensor base = require_grad(range({4, 6, 5}));
    const Tensor x = transpose(base, 0, 1);
    const std::string error = error_of([&] { view(x, {-1}); });
    INFO(error);
    CHECK(contains(error, "view: "));
    CHECK(contains(error, "reshape"));
    const Tensor flat = reshape(x, {-1});
    CHECK(flat.to_vector<int>()[5] == 30);
    backward(sum(flat * range({120})));
    // Element (i, j, k) of the base stands at place (j * 4 + i) * 5 + k.
    Numbers expected;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 6; ++j)
            for (int k = 0; k < 5; ++k) expected.push_back((j * 4 + i) * 5 + k);
    CHECK(differs(base.grad(), expected, exactly) == "");
}

TEST_CASE("BB-079 a strided slice is copied by its own elements", "[views]") {
    const Tensor a = range({2, 2, 2});
    const Tensor odd = select(a, 2, 1);
    CHECK(differs(odd, {1, 3, 5, 7}, exactly) == "");
    CHECK(differs(clone(odd), {1, 3, 5, 7}, exactly) == "");
    copy_(odd, full({2, 2}, -1, DType::f32, Device{}));
    CHECK(differs(a, {0, -1, 2, -1, 4, -1, 6, -1}, exactly) == "");
}

TEST_CASE("BB-080 copies of transposed tensors to another device keep apart", "[views]") {
    if (device_count(Device::cpu) < 2) {
        WARN("not run: GRADUS_CPU_DEVICES is 1");
        return;
    }
    const Device other{Device::cpu, 1};
    int wrong = 0;
    for (int round = 0; round < 50; ++round) {
        Tensors sources, copies;
        for (int i = 0; i < 4; ++i) sources.push_back(transpose(add(range({64, 64}), round * 10 + i)));
        for (const Tensor& x : sources) copies.push_back(to(x, other));
        for (std::size_t i = 0; i < 4; ++i) {
            wrong += copies[i].to_vector<float>() != sources[i].to_vector<float>();
            wrong += to(copies[i], Device{}).to_vector<float>() != sources[i].to_vector<float>();
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("BB-081 the copy of a permuted tensor is the same every time", "[views]") {
    for (const Shape& shape : {Shape{10, 10, 5}, Shape{33, 65, 7}}) {
        const Tensor x = permute(range(shape), {2, 0, 1});
        const std::vector<float> expected = x.to_vector<float>();
        int different = 0;
        for (int i = 0; i < 200; ++i) different += contiguous(x).to_vector<float>() != expected;
        CHECK(different == 0);
    }
}

TEST_CASE("BB-083 a result written into every second column leaves the others alone", "[views]") {
    const Tensor target = full({2, 6}, 7, DType::f32, Device{});
    const Tensor y = softmax(Tensor::from({0.f, 1.f, 2.f, 2.f, 1.f, 0.f}, {2, 3}, Device{}), -1);
    copy_(slice(target, 1, 0, 6, 2), y);
    const Numbers p = y.to_vector<double>();
    CHECK(differs(target, {p[0], 7, p[1], 7, p[2], 7, p[3], 7, p[4], 7, p[5], 7}, exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
