// Softmax and the norms: rows of a Transformer's width, and rows as long as a vocabulary.
#include "bench.h"

namespace gradus::bench {
namespace {

using RowOp = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);

void add_rows(const std::string& name, const Shape& shape, RowOp f) {
    const std::string size = std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
    const auto call = [=] {
        const Tensor x = numbers(shape), weight = ones({shape[1]}, DType::f32, Device{}),
                     bias = zeros({shape[1]}, DType::f32, Device{});
        return std::pair{x, [=] { return f(x, weight, bias); }};
    };
    add(name + "/" + size, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const auto [x, run] = call();
        measure(state, {.bytes = 2 * bytes_of(x)}, run);
    });
    add(name + "/forward_backward/" + size, [=](benchmark::State& state) {
        const auto [x, run] = call();
        // Forward reads x and writes y; backward reads g and y (or x) and writes dx.
        measure(state, {.bytes = 5 * bytes_of(x)}, forward_backward({x}, run));
    });
}

const bool registered = [] {
    for (const Shape& shape : {Shape{3072, 256}, Shape{24576, 24}, Shape{3072, 8000}}) {
        add_rows("softmax", shape, [](const Tensor& x, const Tensor&, const Tensor&) { return softmax(x, -1); });
        add_rows("log_softmax", shape,
                 [](const Tensor& x, const Tensor&, const Tensor&) { return log_softmax(x, -1); });
    }
    for (const Shape& shape : {Shape{3072, 256}, Shape{8192, 1024}}) {
        add_rows("layer_norm", shape,
                 [](const Tensor& x, const Tensor& weight, const Tensor& bias) { return layer_norm(x, weight, bias); });
        add_rows("rms_norm", shape,
                 [](const Tensor& x, const Tensor& weight, const Tensor&) { return rms_norm(x, weight); });
    }
    return true;
}();

}  // namespace
}  // namespace gradus::bench
