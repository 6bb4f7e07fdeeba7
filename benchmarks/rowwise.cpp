// Softmax and the norms: rows of a Transformer's width, and rows as long as a vocabulary; the end of a residual
// sublayer, fused and composed.
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

/// norm(residual + dropout(x)). Bytes are those of the fused op, so that shares compare.
void add_residual(const std::string& name, const Shape& shape, bool fused) {
    const std::string size = std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
    const auto call = [=] {
        const std::vector<Tensor> xs{numbers(shape), numbers(shape), ones({shape[1]}, DType::f32, Device{}),
                                     zeros({shape[1]}, DType::f32, Device{})};
        return std::pair{xs, [=] {
                             if (fused) return dropout_add_layer_norm(xs[0], xs[1], xs[2], xs[3], 0.1);
                             return layer_norm(xs[1] + dropout(xs[0], 0.1), xs[2], xs[3]);
                         }};
    };
    add(name + "/" + size, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const auto [xs, run] = call();
        // x and the residual in, the sum and the result out.
        measure(state, {.bytes = 4 * bytes_of(xs[0])}, run);
    });
    add(name + "/forward_backward/" + size, [=](benchmark::State& state) {
        const auto [xs, run] = call();
        // Backward reads g and the sum and writes the slopes of x and the residual.
        measure(state, {.bytes = 8 * bytes_of(xs[0])}, forward_backward(xs, run));
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
    for (const Shape& shape : {Shape{3072, 512}, Shape{8192, 1024}}) {
        add_residual("dropout_add_layer_norm", shape, true);
        add_residual("dropout_add_layer_norm_composed", shape, false);
    }
    return true;
}();

}  // namespace
}  // namespace gradus::bench
