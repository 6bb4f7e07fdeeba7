// Reading and adding at computed places, and the rules of both: each one's gradient is the other.
#include <cstdint>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/index.h"
#include "gradus/kernels/sort.h"

namespace gradus {
namespace {

/// The index as the kernels read it: contiguous i64, every entry in [0, bound).
Tensor checked_index(const char* op, const Tensor& x, const Tensor& index, std::int64_t bound) {
    check(index.dtype() == DType::i64 || index.dtype() == DType::i32, op, ": the index must be i64 or i32: got ",
          index.dtype());
    check_devices(op, {{"values", x}, {"index", index}});
    const Tensor places = contiguous(index.dtype() == DType::i64 ? index : cast(index, DType::i64));
    return kernels::checked_index(op, places, bound);
}

Tensor select_slices(const char* op, const Tensor& x, int axis, const Tensor& places);

/// Slices of x added up where the index says: (…, count, …) -> (…, bound, …), zero at `skip`.
Tensor sum_slices(const Tensor& x, int axis, const Tensor& places, std::int64_t bound, std::int64_t skip) {
    Shape shape = x.shape();
    shape[axis] = bound;
    const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
    kernels::index_sum(contiguous(x), axis, places, skip, y);
    return record("index_sum", y, wrt(x, [axis, places = saved(places), skip](const Tensor& g) {
                      const Tensor gx = select_slices("index_sum", g, axis, places());
                      if (skip < 0) return gx;
                      Shape along = Shape::filled(gx.rank(), 1);
                      along[axis] = gx.size(axis);
                      return masked_fill(gx, reshape(equal(places(), double(skip)), along), 0);
                  }));
}

/// Slices of x at the index, which has been checked: (…, n, …) -> (…, count, …). No gradient reaches slice `skip`.
Tensor select_slices(const char* op, const Tensor& x, int axis, const Tensor& places, std::int64_t skip) {
    Shape shape = x.shape();
    shape[axis] = places.numel();
    const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
    kernels::index_select(x, axis, places, y);
    return record(op, y, wrt(x, [axis, places = saved(places), n = x.size(axis), skip](const Tensor& g) {
                      return sum_slices(g, axis, places(), n, skip);
                  }));
}

Tensor select_slices(const char* op, const Tensor& x, int axis, const Tensor& places) {
    return select_slices(op, x, axis, places, -1);
}

/// An index of elements has x's rank, and beside the axis no size larger than x's.
void check_element_index(const char* op, const Tensor& x, int axis, const Tensor& index) {
    check(index.rank() == x.rank(), op, ": the index needs as many axes as the values: got ", index.shape(), " for ",
          x.shape());
    for (int i = 0; i < x.rank(); ++i)
        check(i == axis || index.size(i) <= x.size(i), op, ": the index is larger than the values along axis ", i,
              ": got ", index.shape(), " for ", x.shape());
}

}  // namespace

Tensor embedding(const Tensor& ids, const Tensor& table, std::int64_t padding_idx) {
    check(table.rank() == 2, "embedding: the table must be (n, d): got ", table.shape());
    check(padding_idx >= -1 && padding_idx < table.size(0), "embedding: padding_idx ", padding_idx,
          " is not a row of the table ", table.shape(), ", and -1 means none");
    const Tensor places = checked_index("embedding", table, ids, table.size(0));
    Shape shape = ids.shape();
    shape.push_back(table.size(1));
    const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
    const Shape rows{ids.numel(), table.size(1)};
    const Tensor flat = places.with_layout(Layout({ids.numel()}, {1}, places.layout().offset));
    kernels::index_select(table, 0, flat, y.with_layout(Layout(rows)));
    return record("embedding", y,
                  wrt(table, [flat = saved(flat), rows, n = table.size(0), padding_idx](const Tensor& g) {
                      return sum_slices(reshape(g, rows), 0, flat(), n, padding_idx);
                  }));
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
    axis = normal_axis("index_select", axis, x.rank());
    check(index.rank() == 1, "index_select: the index must have one axis: got ", index.shape());
    return select_slices("index_select", x, axis, checked_index("index_select", x, index, x.size(axis)));
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
    axis = normal_axis("gather", axis, x.rank());
    check_element_index("gather", x, axis, index);
    const Tensor places = checked_index("gather", x, index, x.size(axis));
    const Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
    kernels::gather(x, axis, places, y);
    return record("gather", y, wrt(x, [axis, places = saved(places), shape = x.shape()](const Tensor& g) {
                      return scatter_add(zeros(shape, g.dtype(), g.device()), axis, places(), g);
                  }));
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
    axis = normal_axis("scatter_add", axis, x.rank());
    check_element_index("scatter_add", x, axis, index);
    check(source.shape() == index.shape(), "scatter_add: the source needs the index's shape: got ", source.shape(),
          " and ", index.shape());
    check(source.dtype() == x.dtype(), "scatter_add: the source is ", source.dtype(), ", the values are ", x.dtype(),
          ", cast one");
    check_devices("scatter_add", {{"x", x}, {"source", source}});
    const Tensor places = checked_index("scatter_add", x, index, x.size(axis));
    const Tensor y = clone(x.without_past());
    kernels::scatter_add(source, axis, places, y);
    return record("scatter_add", y, wrt(x, [](const Tensor& g) { return g; }),
                  wrt(source, [axis, places = saved(places)](const Tensor& g) { return gather(g, axis, places()); }));
}

Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype) {
    check(classes >= 0, "one_hot: the number of classes is negative: ", classes);
    check(ids.rank() < max_rank, "one_hot: ids of rank ", ids.rank(), " leave no axis for the classes");
    const Tensor places = checked_index("one_hot", ids, ids, classes);
    Shape shape = ids.shape();
    shape.push_back(classes);
    const Tensor y = Tensor::empty(shape, dtype, ids.device());
    kernels::one_hot(places, y);
    return y;
}

TopK topk(const Tensor& x, std::int64_t k, int axis, bool largest) {
    axis = normal_axis("topk", axis, x.rank());
    check(k >= 0 && k <= x.size(axis), "topk: k must lie between 0 and the axis' size ", x.size(axis), ": got ", k,
          " for the shape ", x.shape());
    Shape shape = x.shape();
    shape[axis] = k;
    const Tensor indices = Tensor::empty(shape, DType::i64, x.device());
    kernels::topk(x, axis, largest, indices);
    return {gather(x, axis, indices), indices};
}

}  // namespace gradus
