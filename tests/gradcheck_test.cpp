// gradcheck itself: it must find wrong gradients, and say where.
#include "gradus/autograd/gradcheck.h"

#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

using Tensors = std::vector<Tensor>;

Tensor f64(const std::vector<double>& values, const Shape& shape) { return Tensor::from(values, shape, Device{}); }

/// x² whose rule is `factor` times x; 2 is right.
CheckedFunction squares(double factor) {
    return [factor](const Tensors& t) {
        const Tensor x = t[0], y = square(detach(x));
        return record("squares", y, wrt(x, [x = saved(x), factor](const Tensor& g) { return g * x() * factor; }));
    };
}

TEST_CASE("gradcheck passes what is right and finds what is wrong", "[autograd]") {
    const Tensor x = f64({0.5, -1, 2, 3}, {2, 2});
    gradcheck(squares(2), {x});
    const std::string error = error_of([&] { gradcheck(squares(2.5), {x}); });
    INFO(error);
    CHECK(contains(error, "gradcheck: the gradient is wrong, worst for input 0 at ("));
    CHECK(contains(error, ": backward gave "));
    CHECK(contains(error, ", central differences "));
    CHECK(contains(error, "(step 1e-05, tolerance 1e-06)"));
    CHECK(
        contains(error_of([&] { gradcheck(squares(2.5), {x}, {.directions = 2}); }), " of all inputs: backward gave "));
    gradcheck(squares(2), {x}, {.directions = 2});
}

TEST_CASE("gradcheck names the input and the element", "[autograd]") {
    const Tensor mask = Tensor::from({false, false, true}, Device{});
    const CheckedFunction one_wrong = [&](const Tensors& t) {
        const Tensor a = t[0], b = t[1];
        return record("product", mul(detach(a), detach(b)), wrt(a, [b = saved(b)](const Tensor& g) { return g * b(); }),
                      wrt(b, [a = saved(a), mask](const Tensor& g) { return masked_fill(g * a(), mask, 0); }));
    };
    const std::string error = error_of([&] { gradcheck(one_wrong, {f64({1, 2, 3}, {3}), f64({4, 5, 6}, {3})}); });
    CHECK(contains(error, "worst for input 1 at (2,): backward gave 0, central differences "));
}

TEST_CASE("gradcheck notices a dropped gradient, a random function, a wrong dtype", "[autograd]") {
    const Tensor x = f64({1, 2}, {2});
    CHECK(error_of([&] { gradcheck([](const Tensors& t) { return exp(detach(t[0])); }, {x}); }) ==
          "gradcheck: the result has no past: the function dropped the gradient of its inputs");
    CHECK(contains(error_of([&] {
                       gradcheck([](const Tensors& t) { return dropout(t[0], 0.5); },
                                 {ones({64}, DType::f64, Device{})});
                   }),
                   "gradcheck: the function gives other values for the same inputs"));
    CHECK(error_of([&] { gradcheck([](const Tensors& t) { return cast(t[0], DType::f32); }, {x}); }) ==
          "gradcheck: the function must give f64: got f32");
    CHECK(error_of([&] { gradcheck(squares(2), {cast(x, DType::f32)}); }) ==
          "gradcheck: no input is f64, so there is nothing to check: cast the inputs to f64");
    const Tensor a = f64({1}, {1}), b = f64({2}, {1});
    CHECK(contains(error_of([&] {
                       gradcheck([](const Tensors& t) { return t[0] * detach(t[1]); }, {a, b});
                   }),
                   "worst for input 1 at (0,): backward gave 0, central differences "));
}

TEST_CASE("gradcheck counts NaN as wrong", "[autograd]") {
    const CheckedFunction root = [](const Tensors& t) { return sqrt(square(t[0])); };
    CHECK(contains(error_of([&] { gradcheck(root, {f64({0}, {1})}); }), "backward gave nan"));
}

TEST_CASE("gradcheck hands other dtypes through and leaves its inputs alone", "[autograd]") {
    const Tensor table = f64({1, 2, 3, 4}, {2, 2}), ids = Tensor::from({1, 0, 1}, Device{});
    gradcheck([](const Tensors& t) { return embedding(t[0], t[1]); }, {ids, table});
    CHECK(table.to_vector<double>() == std::vector<double>{1, 2, 3, 4});
    CHECK_FALSE(table.requires_grad());
    const NoGrad scope;
    gradcheck(squares(2), {table});
    CHECK_FALSE(grad_enabled());
}

TEST_CASE("gradgradcheck checks second derivatives, also of linear functions", "[autograd]") {
    const Tensor x = f64({0.5, -1, 2}, {3});
    gradgradcheck([](const Tensors& t) { return t[0] * t[0] * t[0]; }, {x});
    gradgradcheck([](const Tensors& t) { return neg(t[0]); }, {x});
    gradgradcheck([](const Tensors& t) { return t[0] * t[1]; }, {x, f64({3, 4, 5}, {3})});
    // The first derivative of this rule is right, but what it saves is cut off from its past.
    const CheckedFunction half_right = [](const Tensors& t) {
        const Tensor y = square(detach(t[0]));
        return record("squares", y, wrt(t[0], [x = detach(t[0])](const Tensor& g) { return g * x * 2; }));
    };
    gradcheck(half_right, {x});
    CHECK(contains(error_of([&] { gradgradcheck(half_right, {x}); }),
                   "gradgradcheck: the gradient is wrong, worst for input 0"));
}

}  // namespace
}  // namespace gradus::tests
