// ONNX's views, copies, constants and indexing in terms of Gradus.
#include <algorithm>
#include <numeric>

#include "gradus/core/error.h"
#include "gradus/gradus.h"
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

Shape joined(Shape a, const Shape& b) {
    for (const std::int64_t size : b) a.push_back(size);
    return a;
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

// ---- indexing: ONNX lets an index count from the end ----

Tensor from_start(const Tensor& index, std::int64_t n) { return where(less(index, 0.0), index + double(n), index); }

Tensors gathered(const Call& call) {
    const Tensor& x = call[0];
    const int axis = axis_of(call, 0);
    const Tensor index = from_start(call[1], x.size(axis));
    if (axis == 0 && x.rank() == 2 && is_floating(x.dtype())) return {embedding(index, x)};
    const Shape shape = joined(joined(part(x.shape(), 0, axis), index.shape()), part(x.shape(), axis + 1, x.rank()));
    return {reshape(index_select(x, axis, reshape(index, {-1})), shape)};
}

Tensors elements_gathered(const Call& call) {
    const int axis = axis_of(call, 0);
    return {gather(call[0], axis, from_start(call[1], call[0].size(axis)))};
}

// x with source written, not added, at index; no index occurs twice.
Tensor replaced(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
    const Tensor hits = scatter_add(zeros_like(x), axis, index, ones_like(source));
    return scatter_add(where(greater(hits, 0.0), 0.0, x), axis, index, source);
}

Tensors elements_scattered(const Call& call) {
    const int axis = axis_of(call, 0);
    const Tensor index = from_start(call[1], call[0].size(axis));
    const bool add = call.string("reduction", "none") == "add";
    return {add ? scatter_add(call[0], axis, index, call[2]) : replaced(call[0], axis, index, call[2])};
}

// The rows that index tuples (…, k) name, counted over the first k axes behind the batch axes: (B, m).
Tensor rows_named(const Tensor& x, const Tensor& index, int batch_axes) {
    const std::int64_t k = index.size(-1);
    const std::int64_t batch = part(x.shape(), 0, batch_axes).product();
    Integers strides(std::size_t(k), 1);
    Integers sizes;
    for (int i = 0; i < k; ++i) sizes.push_back(x.size(batch_axes + i));
    for (std::size_t i = std::size_t(k) - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
    const Tensor n = vector_of(sizes);
    const Tensor positive = where(less(index, 0.0), index + n, index);
    const Tensor rows = reshape(sum(positive * vector_of(strides), {-1}), {batch, -1});
    return rows + unsqueeze(arange(batch, DType::i64, Device{}), 1) * double(strides[0] * sizes[0]);
}

Tensors tuples_gathered(const Call& call) {
    const Tensor& x = call[0];
    const Tensor& index = call[1];
    const int batch_axes = int(call.integer("batch_dims", 0));
    const int named = batch_axes + int(index.size(-1));
    const Shape rest = part(x.shape(), named, x.rank());
    const Tensor table = reshape(x, joined({part(x.shape(), 0, named).product()}, rest));
    const Tensor rows = reshape(rows_named(x, index, batch_axes), {-1});
    return {reshape(index_select(table, 0, rows), joined(part(index.shape(), 0, index.rank() - 1), rest))};
}

Tensors tuples_scattered(const Call& call) {
    const int named = int(call[1].size(-1));
    const Tensor x = reshape(call[0], {part(call[0].shape(), 0, named).product(), -1});  // (P, R)
    const Tensor index = transpose(rows_named(call[0], call[1], 0));                     // (M, 1)
    const Tensor everywhere = expand(index, {index.size(0), x.size(1)});                 // (M, R)
    const Tensor source = reshape(call[2], everywhere.shape());
    const std::string reduction = call.string("reduction", "none");
    Tensor y = x;
    if (reduction == "add") {
        y = scatter_add(x, 0, everywhere, source);
    } else if (reduction == "mul") {  // row by row, since a row may be named twice
        for (std::int64_t m = 0; m < source.size(0); ++m) {
            y = y * replaced(ones_like(x), 0, slice(everywhere, 0, m, m + 1), slice(source, 0, m, m + 1));
        }
    } else {
        y = replaced(x, 0, everywhere, source);
    }
    return {reshape(y, call[0].shape())};
}

Tensors one_hot_rows(const Call& call) {
    const std::int64_t classes = call[1].item<std::int64_t>();
    const Tensor ids = from_start(cast(call[0], DType::i64), classes);
    const Tensor hot = one_hot(ids, classes, DType::boolean);  // the class axis is the last
    const Tensor y = where(hot, select(call[2], 0, 1), select(call[2], 0, 0));
    const int axis = normal_axis("OneHot", call.integer("axis", -1), y.rank());
    Axes order;
    for (int i = 0; i < y.rank() - 1; ++i) order.push_back(i);
    order.insert(axis, y.rank() - 1);
    return {permute(y, order)};
}

Tensors sequences_reversed(const Call& call) {
    const Tensor& x = call[0];
    const int time = int(call.integer("time_axis", 0));
    const Tensor t = unsqueeze(arange(x.size(time), DType::i64, x.device()), 1);  // (T, 1)
    const Tensor& lengths = call[1];                                             // (B)
    Tensor index = where(less(t, lengths), lengths - 1 - t, expand(t, {x.size(time), lengths.numel()}));
    if (time == 1) index = transpose(index);
    while (index.rank() < x.rank()) index = unsqueeze(index, -1);
    return {gather(x, time, expand(index, x.shape()))};
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
        {"Gather", gathered},
        {"GatherElements", elements_gathered},
        {"GatherND", tuples_gathered},
        {"OneHot", one_hot_rows},
        {"Pad", padded},
        {"Range", ranged},
        {"Reshape", reshaped},
        {"ReverseSequence", sequences_reversed},
        {"Scatter", elements_scattered},
        {"ScatterElements", elements_scattered},
        {"ScatterND", tuples_scattered},
        {"Shape", shape_of},
        {"Size",
         [](const Call& call) -> Tensors {
             return {Tensor::scalar(double(call[0].numel()), DType::i64, Device{})};
         }},
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
