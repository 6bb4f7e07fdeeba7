// ONNX's indexing ops in terms of Gradus.
#include "gradus/autograd/ops.h"
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

// ONNX lets an index count from the end.
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
    const Tensor& lengths = call[1];                                              // (B)
    Tensor index = where(less(t, lengths), lengths - 1 - t, expand(t, {x.size(time), lengths.numel()}));
    if (time == 1) index = transpose(index);
    while (index.rank() < x.rank()) index = unsqueeze(index, -1);
    return {gather(x, time, expand(index, x.shape()))};
}

}  // namespace

Cases index_cases() {
    return {
        {"Gather", gathered},
        {"GatherElements", elements_gathered},
        {"GatherND", tuples_gathered},
        {"OneHot", one_hot_rows},
        {"ReverseSequence", sequences_reversed},
        {"Scatter", elements_scattered},
        {"ScatterElements", elements_scattered},
        {"ScatterND", tuples_scattered},
    };
}

}  // namespace gradus::onnx
