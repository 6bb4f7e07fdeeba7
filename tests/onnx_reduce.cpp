// ONNX's reductions in terms of Gradus.
#include <algorithm>
#include <string>

#include "gradus/autograd/ops.h"
#include "gradus/core/error.h"
#include "gradus/tests/onnx_cases.h"

namespace gradus::onnx {
namespace {

// Axes stand in an attribute (old versions) or in input 1; none at all means all, unless the node asks for none.
template <Tensor (*f)(const Tensor&, const Axes&, bool)>
Tensors reduce(const Call& call) {
    const Tensor& x = call[0];
    const std::vector<std::int64_t> axes = call.integers("axes", 1);
    if (axes.empty() && call.integer("noop_with_empty_axes", 0)) return {x};
    const Tensor y = f(x, axes, call.integer("keepdims", 1) != 0);
    return {is_integer(x.dtype()) ? cast(y, x.dtype()) : y};  // Gradus sums integers in i64
}

Tensor l1(const Tensor& x, const Axes& axes, bool keep) { return sum(abs(x), axes, keep); }
Tensor log_sum(const Tensor& x, const Axes& axes, bool keep) { return log(sum(x, axes, keep)); }
Tensor sum_square(const Tensor& x, const Axes& axes, bool keep) { return sum(square(x), axes, keep); }

template <Tensor (*f)(const Tensor&, int, bool)>
Tensors arg(const Call& call) {
    const Tensor& x = call[0];
    const int axis = normal_axis("arg", call.integer("axis", 0), x.rank());
    const bool keep = call.integer("keepdims", 1) != 0;
    if (!call.integer("select_last_index", 0)) return {f(x, axis, keep)};
    return {x.size(axis) - 1 - f(flip(x, {axis}), axis, keep)};
}

Tensors cumulative(const Call& call) {
    const int axis = call[1].item<int>();
    const bool reverse = call.integer("reverse", 0) != 0;
    const Tensor x = reverse ? flip(call[0], {axis}) : call[0];
    Tensor y = cumsum(x, axis);
    if (call.integer("exclusive", 0)) y = y - x;
    return {reverse ? flip(y, {axis}) : y};
}

Tensors top_k(const Call& call) {
    const TopK top = topk(call[0], call[1].item<std::int64_t>(), static_cast<int>(call.integer("axis", -1)),
                          call.integer("largest", 1) != 0);
    return {top.values, top.indices};
}

// Every axis after batch and channel.
Axes spatial(const Tensor& x) {
    Axes axes;
    for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
    return axes;
}

// Note [Einsum]
// Each operand is brought to one common row of labels: those of the output, then those that are summed. An axis that it
// lacks has size 1, a label that it has twice becomes a diagonal. Then one product and one sum do the rest. An ellipsis
// stands for the batch axes, which get capital letters from the right.
struct Equation {
    std::vector<std::string> operands;
    std::string output;
};

std::string without_ellipsis(const std::string& labels, int rank) {
    const std::size_t at = labels.find("...");
    if (at == std::string::npos) return labels;
    std::string batch;
    for (int left = rank - static_cast<int>(labels.size()) + 3; left > 0; --left) batch += char('A' + left - 1);
    return labels.substr(0, at) + batch + labels.substr(at + 3);
}

Equation parse_equation(std::string text, const Tensors& operands) {
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    const std::size_t arrow = text.find("->");
    std::string inputs = text.substr(0, arrow) + ",";
    Equation equation;
    int batch = 0;
    for (std::size_t comma; (comma = inputs.find(',')) != std::string::npos; inputs.erase(0, comma + 1)) {
        const std::string labels = inputs.substr(0, comma);
        const int rank = operands.at(equation.operands.size()).rank();
        if (labels.find("...") != std::string::npos) batch = std::max(batch, rank - int(labels.size()) + 3);
        equation.operands.push_back(without_ellipsis(labels, rank));
    }
    if (arrow != std::string::npos) {
        const std::string labels = text.substr(arrow + 2);
        equation.output = without_ellipsis(labels, batch + static_cast<int>(labels.size()) - 3);
        return equation;
    }
    std::string all;  // without an arrow: the labels that occur once, in the order of the alphabet
    for (const std::string& labels : equation.operands) all += labels;
    for (const char label : all) {
        if (std::count(all.begin(), all.end(), label) == 1) equation.output += label;
    }
    std::sort(equation.output.begin(), equation.output.end());
    return equation;
}

Tensor diagonals(Tensor x, std::string& labels) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::size_t twin = labels.find(labels[i], i + 1);
        if (twin == std::string::npos) continue;
        const std::int64_t n = x.size(int(i));
        Shape shape = Shape::filled(x.rank(), 1);
        shape[int(i)] = n;
        shape[int(twin)] = n;
        x = sum(x * reshape(eye(n, x.dtype(), x.device()), shape), {std::int64_t(twin)});
        labels.erase(twin, 1);
        --i;  // the label may occur a third time
    }
    return x;
}

Tensors einsum(const Call& call) {
    Equation equation = parse_equation(call.string("equation", ""), call.all());
    Tensors operands = call.all();
    std::string row = equation.output;
    for (std::size_t k = 0; k < operands.size(); ++k) {
        operands[k] = diagonals(operands[k], equation.operands[k]);
        for (const char label : equation.operands[k]) {
            if (row.find(label) == std::string::npos) row += label;
        }
    }
    Tensor product;
    for (std::size_t k = 0; k < operands.size(); ++k) {
        Axes order;
        Shape shape;
        for (const char label : row) {
            const std::size_t at = equation.operands[k].find(label);
            if (at != std::string::npos) order.push_back(std::int64_t(at));
            shape.push_back(at == std::string::npos ? 1 : operands[k].size(int(at)));
        }
        const Tensor x = reshape(permute(operands[k], order), shape);
        product = product.defined() ? product * x : x;
    }
    Axes summed;
    for (std::size_t i = equation.output.size(); i < row.size(); ++i) summed.push_back(std::int64_t(i));
    return {summed.rank() ? sum(product, summed) : product};
}

}  // namespace

Cases reduce_cases() {
    return {
        {"ArgMax", arg<argmax>},
        {"ArgMin", arg<argmin>},
        {"CumSum", cumulative},
        {"Einsum", einsum},
        {"GlobalAveragePool", [](const Call& call) -> Tensors { return {mean(call[0], spatial(call[0]), true)}; }},
        {"GlobalMaxPool", [](const Call& call) -> Tensors { return {max(call[0], spatial(call[0]), true)}; }},
        {"ReduceL1", reduce<l1>},
        {"ReduceL2", reduce<norm>},
        {"ReduceLogSum", reduce<log_sum>},
        {"ReduceLogSumExp", reduce<logsumexp>},
        {"ReduceMax", reduce<max>},
        {"ReduceMean", reduce<mean>},
        {"ReduceMin", reduce<min>},
        {"ReduceProd", reduce<prod>},
        {"ReduceSum", reduce<sum>},
        {"ReduceSumSquare", reduce<sum_square>},
        {"TopK", top_k},
    };
}

}  // namespace gradus::onnx
