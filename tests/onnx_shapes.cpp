// ONNX's views, copies, constants and indexing in terms of Gradus.
#include <algorithm>
#include <numeric>

#include "gradus/autograd/ops.h"
#include "gradus/core/error.h"
#include "gradus/tests/onnx_cases.h"

namespace gradus::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

int axis_of(const Call& call, std::int64_t fallback) {
    return normal_axis("axis", call.integer("axis", fallback), call[0].rank());
}

Tensor vector_of(const Integers& values) { return Tensor::from(values, Device{}); }

// Part of a shape: [first, last).
Shape part(const Shape& shape, int first, int last) {
    Shape sizes;
    for (int i = first; i < last; ++i) sizes.push_back(shape[i]);
    return sizes;
}

Tensors split_into(const Call& call) {
    const int axis = axis_of(call, 0);
    const Integers sizes = call.integers("split", 1);
    return sizes.empty() ? split(call[0], call.outputs(), axis) : split(call[0], sizes, axis);
}

Tensors transposed(const Call& call) {
    Integers order = call.integers("perm");
    if (order.empty()) {
        order.resize(std::size_t(call[0].rank()));
        std::iota(order.rbegin(), order.rend(), 0);
    }
    return {permute(call[0], order)};
}

Tensors reshaped(const Call& call) {
    Integers shape = call.integers("shape", 1);
    if (!call.integer("allowzero", 0)) {  // a 0 takes the old size
        for (std::size_t i = 0; i < shape.size(); ++i) {
            if (shape[i] == 0) shape[i] = call[0].size(int(i));
        }
    }
    return {reshape(call[0], shape)};
}

Tensors flattened(const Call& call) {
    const Tensor& x = call[0];
    std::int64_t axis = call.integer("axis", 1);
    if (axis < 0) axis += x.rank();
    return {reshape(x, {part(x.shape(), 0, int(axis)).product(), part(x.shape(), int(axis), x.rank()).product()})};
}

Tensors unsqueezed(const Call& call) {
    Integers axes = call.integers("axes", 1);
    const int rank = call[0].rank() + int(axes.size());
    for (std::int64_t& axis : axes) axis = normal_axis("Unsqueeze", axis, rank);
    std::sort(axes.begin(), axes.end());
    Tensor y = call[0];
    for (const std::int64_t axis : axes) y = unsqueeze(y, int(axis));
    return {y};
}

Tensors expanded(const Call& call) {
    const Shape wanted = call[1].to_vector<std::int64_t>();
    return {expand(call[0], broadcast("Expand", call[0].shape(), wanted))};
}

// ---- padding and slicing: one axis after another ----

// Where element i of a padded axis comes from, for i from -before to n + after - 1.
Integers mirrored(std::int64_t n, std::int64_t before, std::int64_t after, bool edge) {
    Integers from;
    for (std::int64_t i = -before; i < n + after; ++i) {
        std::int64_t at = edge ? std::clamp<std::int64_t>(i, 0, n - 1) : std::abs(i);
        if (at >= n) at = 2 * (n - 1) - at;
        from.push_back(at);
    }
    return from;
}

Tensors padded(const Call& call) {
    const Integers pads = call.integers("pads", 1);
    const Integers before(pads.begin(), pads.begin() + std::ptrdiff_t(pads.size() / 2));
    const Integers after(pads.begin() + std::ptrdiff_t(pads.size() / 2), pads.end());
    const std::string mode = call.string("mode", "constant");
    if (mode == "constant") {
        return {pad(call[0], before, after, call.has(2) ? call[2].item() : call.real("value", 0.0))};
    }
    Tensor y = call[0];
    for (std::size_t axis = 0; axis < before.size(); ++axis) {
        const Integers from = mirrored(y.size(int(axis)), before[axis], after[axis], mode == "edge");
        y = index_select(y, int(axis), vector_of(from));
    }
    return {y};
}

// The elements that Python's range takes of an axis of n, counting down.
Integers backwards(std::int64_t n, std::int64_t start, std::int64_t stop, std::int64_t step) {
    start = std::clamp<std::int64_t>(start < 0 ? start + n : start, -1, n - 1);
    stop = std::clamp<std::int64_t>(stop < 0 ? stop + n : stop, -1, n - 1);
    Integers from;
    for (std::int64_t i = start; i > stop; i += step) from.push_back(i);
    return from;
}

Tensors sliced(const Call& call) {
    Tensor y = call[0];
    const Integers starts = call.integers("starts", 1);
    const Integers stops = call.integers("ends", 2);
    Integers axes = call.integers("axes", 3);
    if (axes.empty()) {
        axes.resize(starts.size());
        std::iota(axes.begin(), axes.end(), 0);
    }
    Integers steps = call.integers("steps", 4);
    steps.resize(starts.size(), 1);
    for (std::size_t i = 0; i < starts.size(); ++i) {
        const int axis = normal_axis("Slice", axes[i], y.rank());
        y = steps[i] > 0 ? slice(y, axis, starts[i], stops[i], steps[i])
                         : index_select(y, axis, vector_of(backwards(y.size(axis), starts[i], stops[i], steps[i])));
    }
    return {y};
}

// ---- constants ----

Tensors constant(const Call& call) {
    if (call.has("value")) return {to_tensor(call.attribute("value").t, call.attribute("value").t.type)};
    if (call.has("value_int")) return {Tensor::scalar(double(call.integer("value_int", 0)), DType::i64, Device{})};
    if (call.has("value_float")) return {Tensor::scalar(call.real("value_float", 0.0), DType::f32, Device{})};
    if (call.has("value_ints")) return {vector_of(call.integers("value_ints"))};
    return {Tensor::from(call.attribute("value_floats").floats, Device{})};
}

Tensors filled(const Call& call) {
    const Shape shape = call[0].to_vector<std::int64_t>();
    if (!call.has("value")) return {zeros(shape, DType::f32, Device{})};
    return {expand(reshape(constant(call)[0], {}), shape)};
}

Tensors eye_like(const Call& call) {
    const Tensor& x = call[0];
    const DType type = call.has("dtype") ? *dtype(static_cast<Type>(call.integer("dtype", 0))) : x.dtype();
    const std::int64_t k = call.integer("k", 0);
    if (k == 0) return {eye(x.size(0), x.size(1), type, x.device())};
    const Tensor row = unsqueeze(arange(x.size(0), DType::i64, x.device()), 1);
    return {cast(equal(arange(x.size(1), DType::i64, x.device()) - row, double(k)), type)};
}

Tensors ranged(const Call& call) {
    return {arange(call[0].item(), call[1].item(), call[2].item(), call[0].dtype(), Device{})};
}

Tensors shape_of(const Call& call) {
    const std::int64_t rank = call[0].rank();
    const auto bound = [rank](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
    const std::int64_t first = bound(call.integer("start", 0));
    const std::int64_t last = bound(call.integer("end", rank));
    const Shape sizes = part(call[0].shape(), int(first), int(last));
    return {vector_of(Integers(sizes.begin(), sizes.end()))};
}

// ---- channels to pixels and back ----

Tensors depth_to_space(const Call& call) {
    const Tensor& x = call[0];  // (B, C b², H, W)
    const std::int64_t b = call.integer("blocksize", 1);
    const std::int64_t c = x.size(1) / (b * b);
    const bool channel_first = call.string("mode", "DCR") == "CRD";
    const Tensor y = channel_first
                         ? permute(reshape(x, {x.size(0), c, b, b, x.size(2), x.size(3)}), {0, 1, 4, 2, 5, 3})
                         : permute(reshape(x, {x.size(0), b, b, c, x.size(2), x.size(3)}), {0, 3, 4, 1, 5, 2});
    return {reshape(y, {x.size(0), c, x.size(2) * b, x.size(3) * b})};
}

Tensors space_to_depth(const Call& call) {
    const Tensor& x = call[0];  // (B, C, H b, W b)
    const std::int64_t b = call.integer("blocksize", 1);
    const Tensor blocks = reshape(x, {x.size(0), x.size(1), x.size(2) / b, b, x.size(3) / b, b});
    return {reshape(permute(blocks, {0, 3, 5, 1, 2, 4}), {x.size(0), -1, x.size(2) / b, x.size(3) / b})};
}

Tensors triangle(const Call& call) {
    const std::int64_t k = call.has(1) ? call[1].item<std::int64_t>() : 0;
    return {call.integer("upper", 1) ? triu(call[0], k) : tril(call[0], k)};
}

}  // namespace

Cases shape_cases() {
    return {
        {"Concat", [](const Call& call) -> Tensors { return {cat(call.all(), axis_of(call, 1))}; }},
        {"Constant", constant},
        {"ConstantOfShape", filled},
        {"DepthToSpace", depth_to_space},
        {"Expand", expanded},
        {"EyeLike", eye_like},
        {"Flatten", flattened},
        {"Pad", padded},
        {"Range", ranged},
        {"Reshape", reshaped},
        {"Shape", shape_of},
        {"Size",
         [](const Call& call) -> Tensors { return {Tensor::scalar(double(call[0].numel()), DType::i64, Device{})}; }},
        {"Slice", sliced},
        {"SpaceToDepth", space_to_depth},
        {"Split", split_into},
        {"Squeeze", [](const Call& call) -> Tensors { return {squeeze(call[0], call.integers("axes", 1))}; }},
        {"Tile", [](const Call& call) -> Tensors { return {repeat(call[0], call[1].to_vector<std::int64_t>())}; }},
        {"Transpose", transposed},
        {"Trilu", triangle},
        {"Unsqueeze", unsqueezed},
    };
}

}  // namespace gradus::onnx
