// ONNX's products, normalisations, losses and optimizer steps in terms of Gradus.
#include <cmath>
#include <numbers>

#include "gradus/autograd/ops.h"
#include "gradus/core/error.h"
#include "gradus/tests/onnx_cases.h"

namespace gradus::onnx {
namespace {

Tensors gemm(const Call& call) {
    const double alpha = call.real("alpha", 1.0);
    const double beta = call.real("beta", 1.0);
    const Tensor a = call.integer("transA", 0) ? transpose(call[0]) : call[0];
    const bool b_transposed = call.integer("transB", 0) != 0;
    const std::int64_t n = call[1].size(b_transposed ? 0 : 1);
    if (b_transposed && alpha == 1 && beta == 1 && (!call.has(2) || call[2].numel() == n)) {
        return {linear(a, call[1], call.has(2) ? reshape(call[2], {n}) : Tensor())};
    }
    const Tensor y = alpha * matmul(a, b_transposed ? transpose(call[1]) : call[1]);
    return {call.has(2) ? y + beta * call[2] : y};
}

// ---- rows ----

// Before version 13 everything from `axis` on was one row.
template <Tensor (*f)(const Tensor&, int)>
Tensors rows(const Call& call) {
    const Tensor& x = call[0];
    if (call.opset() >= 13) return {f(x, int(call.integer("axis", -1)))};
    const int axis = normal_axis("rows", call.integer("axis", 1), x.rank());
    std::int64_t length = 1;
    for (int i = axis; i < x.rank(); ++i) length *= x.size(i);
    return {reshape(f(reshape(x, {-1, length}), 1), x.shape())};
}

// 1 at the first largest element, 0 elsewhere.
Tensor hardmax(const Tensor& x, int axis) {
    return scatter_add(zeros_like(x), axis, argmax(x, axis, true), ones_like(slice(x, axis, 0, 1)));
}

Tensors layer_normalization(const Call& call) {
    const Tensor& x = call[0];
    const double eps = call.real("epsilon", 1e-5);
    Axes axes;
    for (int axis = normal_axis("axis", call.integer("axis", -1), x.rank()); axis < x.rank(); ++axis) {
        axes.push_back(axis);
    }
    return {layer_norm(x, call[1], call.has(2) ? call[2] : Tensor(), eps), mean(x, axes, true),
            rsqrt(var(x, axes, true, false) + eps)};
}

// One number per channel, to be combined with (N, C, …).
Tensor per_channel(const Tensor& v, const Tensor& x) {
    Shape shape = Shape::filled(x.rank(), 1);
    shape[1] = v.numel();
    return reshape(v, shape);
}

Axes all_but_channel(const Tensor& x, bool and_batch) {
    Axes axes;
    for (int axis = and_batch ? 1 : 0; axis < x.rank(); ++axis) {
        if (axis != 1) axes.push_back(axis);
    }
    return axes;
}

Tensors batch_normalization(const Call& call) {
    const Tensor& x = call[0];
    const double eps = call.real("epsilon", 1e-5);
    const double momentum = call.real("momentum", 0.9);
    Tensor center = call[3];
    Tensor variance = call[4];
    Tensors running;
    if (call.integer("training_mode", 0)) {
        center = mean(x, all_but_channel(x, false));
        variance = var(x, all_but_channel(x, false), false, false);
        running = {momentum * call[3] + (1 - momentum) * center, momentum * call[4] + (1 - momentum) * variance};
    }
    const Tensor scale = call[1] * rsqrt(variance + eps);
    const Tensor y = (x - per_channel(center, x)) * per_channel(scale, x) + per_channel(call[2], x);
    running.insert(running.begin(), y);
    return running;
}

Tensors instance_normalization(const Call& call) {
    const Tensor& x = call[0];
    const Axes axes = all_but_channel(x, true);
    const Tensor normal = (x - mean(x, axes, true)) * rsqrt(var(x, axes, true, false) + call.real("epsilon", 1e-5));
    return {normal * per_channel(call[1], x) + per_channel(call[2], x)};
}

Tensors mean_variance_normalization(const Call& call) {
    const Tensor& x = call[0];
    const Axes axes = call.has("axes") ? Axes(call.integers("axes")) : Axes{0, 2, 3};
    return {(x - mean(x, axes, true)) / (sqrt(var(x, axes, true, false)) + 1e-9)};
}

// x / (bias + alpha / size · Σ x²)^beta, the sum over `size` neighbouring channels.
Tensors local_response_normalization(const Call& call) {
    const Tensor& x = call[0];
    const std::int64_t size = call.integer("size", 1);
    std::vector<std::int64_t> before(std::size_t(x.rank()), 0);
    std::vector<std::int64_t> after = before;
    before[1] = (size - 1) / 2;
    after[1] = size / 2;
    const Tensor squares = pad(square(x), before, after);
    Tensor total = slice(squares, 1, 0, x.size(1));
    for (std::int64_t i = 1; i < size; ++i) total = total + slice(squares, 1, i, i + x.size(1));
    const Tensor base = call.real("bias", 1.0) + call.real("alpha", 1e-4) / double(size) * total;
    return {x / pow(base, call.real("beta", 0.75))};
}

Tensors dropped(const Call& call) {
    const bool training = call.has(2) && call[2].item<bool>();
    const double p = call.has(1) ? call[1].item() : call.real("ratio", 0.5);
    if (!training || p == 0) {
        return {dropout(call[0], p, training), ones_like(cast(call[0], DType::boolean))};
    }
    const Tensor y = dropout(call[0], p);
    return {y, not_equal(y, 0.0)};
}

// ---- losses ----

CrossEntropyOptions loss_options(const Call& call) {
    CrossEntropyOptions options;
    options.ignore_index = call.integer("ignore_index", options.ignore_index);
    if (call.has(2)) options.class_weights = call[2];
    const std::string reduction = call.string("reduction", "mean");
    options.reduction = reduction == "none" ? Reduction::none : reduction == "sum" ? Reduction::sum : Reduction::mean;
    return options;
}

// ---- optimizer steps: learning rate and step count, then per parameter x its gradient and its state ----

struct Step {
    double rate = 0;
    std::int64_t count = 0;
    int parameters = 0;
    Tensors xs, gradients, first, second;
};

Step step_of(const Call& call, int states) {
    Step step{call[0].item(), call[1].item<std::int64_t>(), (call.inputs() - 2) / (2 + states), {}, {}, {}, {}};
    const double decay = call.real("norm_coefficient", 0.0);
    int at = 2;
    for (Tensors* group : {&step.xs, &step.gradients, &step.first, &step.second}) {
        for (int i = 0; i < step.parameters && at < call.inputs(); ++i) group->push_back(call[at++]);
    }
    for (std::size_t i = 0; i < step.xs.size(); ++i) step.gradients[i] = decay * step.xs[i] + step.gradients[i];
    return step;
}

Tensors concatenated(Tensors a, const Tensors& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Tensors adam(const Call& call) {
    Step step = step_of(call, 2);
    const double alpha = call.real("alpha", 0.9);
    const double beta = call.real("beta", 0.999);
    const double eps = call.real("epsilon", 1e-6);
    const double keep = 1 - call.real("norm_coefficient_post", 0.0);
    const double t = double(step.count);
    const double rate =
        step.count > 0 ? step.rate * std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t)) : step.rate;
    for (std::size_t i = 0; i < step.xs.size(); ++i) {
        const Tensor& g = step.gradients[i];
        Tensor& v = step.first[i];
        Tensor& h = step.second[i];
        v = alpha * v + (1 - alpha) * g;
        h = beta * h + (1 - beta) * square(g);
        step.xs[i] = keep * (step.xs[i] - rate * v / (sqrt(h) + eps));
    }
    return concatenated(concatenated(step.xs, step.first), step.second);
}

Tensors adagrad(const Call& call) {
    Step step = step_of(call, 1);
    const double rate = step.rate / (1 + double(step.count) * call.real("decay_factor", 0.0));
    const double eps = call.real("epsilon", 1e-6);
    for (std::size_t i = 0; i < step.xs.size(); ++i) {
        Tensor& h = step.first[i];
        h = h + square(step.gradients[i]);
        step.xs[i] = step.xs[i] - rate * step.gradients[i] / (sqrt(h) + eps);
    }
    return concatenated(step.xs, step.first);
}

Tensors momentum(const Call& call) {
    Step step = step_of(call, 1);
    const double alpha = call.real("alpha", 0.0);
    const double beta = step.count > 0 ? call.real("beta", 0.0) : 1.0;
    const bool nesterov = call.string("mode", "standard") == "nesterov";
    for (std::size_t i = 0; i < step.xs.size(); ++i) {
        const Tensor& g = step.gradients[i];
        Tensor& v = step.first[i];
        v = alpha * v + beta * g;
        step.xs[i] = step.xs[i] - step.rate * (nesterov ? g + alpha * v : v);
    }
    return concatenated(step.xs, step.first);
}

// ---- windows: a - b cos(2πi / n) + c cos(4πi / n) ----

Tensors window(const Call& call, double a, double b, double c) {
    const std::int64_t size = call[0].item<std::int64_t>();
    const double n = call.integer("periodic", 1) ? double(size) : double(size - 1);
    const Tensor angle = arange(size, DType::f32, Device{}) * (2 * std::numbers::pi / n);
    return {a - b * cos(angle) + c * cos(2.0 * angle)};
}

}  // namespace

Cases network_cases() {
    return {
        {"Adagrad", adagrad},
        {"Adam", adam},
        {"BatchNormalization", batch_normalization},
        {"BlackmanWindow", [](const Call& call) { return window(call, 0.42, 0.5, 0.08); }},
        {"Dropout", dropped},
        {"Gemm", gemm},
        {"HammingWindow", [](const Call& call) { return window(call, 25.0 / 46.0, 21.0 / 46.0, 0.0); }},
        {"HannWindow", [](const Call& call) { return window(call, 0.5, 0.5, 0.0); }},
        {"Hardmax", rows<hardmax>},
        {"InstanceNormalization", instance_normalization},
        {"LRN", local_response_normalization},
        {"LayerNormalization", layer_normalization},
        {"LogSoftmax", rows<log_softmax>},
        {"MatMul", [](const Call& call) -> Tensors { return {matmul(call[0], call[1])}; }},
        {"MeanVarianceNormalization", mean_variance_normalization},
        {"Momentum", momentum},
        {"NegativeLogLikelihoodLoss",
         [](const Call& call) -> Tensors { return {nll_loss(call[0], call[1], loss_options(call))}; }},
        {"Softmax", rows<softmax>},
        {"SoftmaxCrossEntropyLoss",
         [](const Call& call) -> Tensors {
             return {cross_entropy(call[0], call[1], loss_options(call)), log_softmax(call[0], 1)};
         }},
    };
}

}  // namespace gradus::onnx
