// Pointwise ops, copies and reductions at memory speed, and what one op costs when there is nothing to compute.
#include "bench.h"

namespace gradus::bench {
namespace {

void add_op(const std::string& name, int operands, const Shape& shape, Tensor (*f)(const Tensor&, const Tensor&)) {
    add("pointwise/" + name, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor a = numbers(shape), b = numbers(shape);
        measure(state, {.bytes = (operands + 1) * bytes_of(a)}, [&] { f(a, b); });
    });
}

const bool registered = [] {
    const Shape large{4096, 2048};
    add_op("add/8M", 2, large, [](const Tensor& a, const Tensor& b) { return add(a, b); });
    add_op("relu/8M", 1, large, [](const Tensor& a, const Tensor&) { return relu(a); });
    add_op("exp/8M", 1, large, [](const Tensor& a, const Tensor&) { return exp(a); });
    add_op("gelu/8M", 1, large, [](const Tensor& a, const Tensor&) { return gelu(a); });
    add_op("tanh/8M", 1, large, [](const Tensor& a, const Tensor&) { return tanh(a); });
    add_op("add_row/8M", 1, large, [](const Tensor& a, const Tensor& b) { return add(a, select(b, 0, 0)); });
    add_op("transpose_copy/8M", 1, large, [](const Tensor& a, const Tensor&) { return contiguous(transpose(a)); });
    add_op("dropout/8M", 1, large, [](const Tensor& a, const Tensor&) { return dropout(a, 0.1); });
    add("pointwise/head_split_copy/128x24x8x32", [](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor x = permute(numbers({128, 24, 8, 32}), {0, 2, 1, 3});
        measure(state, {.bytes = 2 * bytes_of(x)}, [&] { contiguous(x); });
    });
    add("reduce/sum_all/8M", [=](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor x = numbers(large);
        measure(state, {.bytes = bytes_of(x)}, [&] { sum(x); });
    });
    add("reduce/sum_columns/8M", [=](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor x = numbers(large);
        measure(state, {.bytes = bytes_of(x)}, [&] { sum(x, {0}); });
    });
    add("overhead/add/1", [](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor a = numbers({1}), b = numbers({1});
        measure(state, {}, [&] { add(a, b); });
    });
    add("overhead/add_recorded/1", [](benchmark::State& state) {
        const Tensor a = numbers({1}), b = numbers({1});
        require_grad(a);
        measure(state, {}, [&] { add(a, b); });
    });
    add("overhead/chain_forward_backward/1000", [](benchmark::State& state) {
        const Tensor x = numbers({1});
        measure(state, {}, forward_backward({x}, [=] {
                    Tensor y = x;
                    for (int i = 0; i < 1000; ++i) y = mul(y, 1.0);
                    return sum(y);
                }));
    });
    return true;
}();

}  // namespace
}  // namespace gradus::bench
