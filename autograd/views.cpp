// Views and copies, and their rules.
#include <algorithm>

#include "gradus/autograd/rules.h"
#include "gradus/core/stream.h"
#include "gradus/core/transfer.h"
#include "gradus/kernels/memory.h"

namespace gradus {
namespace {

template <class Rule>
Tensor view_of(const char* op, const Tensor& x, const Layout& layout, Rule rule) {
    return record(op, x.with_layout(layout), wrt(x, std::move(rule)));
}

Tensor copied(const Tensor& x) {
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels::copy(x, y);
    return y;
}

/// Zeros of `shape` with g at [start :: step] of an axis: the gradient of a slice.
Tensor place_slice(const Tensor& g, const Shape& shape, int axis, std::int64_t start, std::int64_t step) {
    const Tensor y = zeros(shape, g.dtype(), g.device());
    kernels::copy(g, y.with_layout(y.layout().slice(axis, start, g.size(axis), step)));
    return record("place_slice", y, wrt(g, [axis, start, step, n = g.size(axis)](const Tensor& gg) {
                      return slice(gg, axis, start, n > 0 ? start + (n - 1) * step + 1 : start, step);
                  }));
}

}  // namespace

Tensor view(const Tensor& x, const Shape& shape) {
    const Shape target = resolve_shape("view", x.shape(), shape);
    const auto layout = x.layout().view(target);
    check(layout.has_value(), "view: shape ", x.shape(), " with strides ", x.strides(), " cannot be seen as ", target,
          " without a copy: use reshape, or contiguous first");
    return view_of("view", x, *layout, [from = x.shape()](const Tensor& g) { return reshape(g, from); });
}

Tensor reshape(const Tensor& x, const Shape& shape) {
    if (x.shape() == shape) return x;
    const Shape target = resolve_shape("reshape", x.shape(), shape);
    if (const auto layout = x.layout().view(target))
        return view_of("reshape", x, *layout, [from = x.shape()](const Tensor& g) { return reshape(g, from); });
    const Tensor y = copied(x);
    return record("reshape", y.with_layout(Layout(target)),
                  wrt(x, [from = x.shape()](const Tensor& g) { return reshape(g, from); }));
}

Tensor permute(const Tensor& x, const Axes& order) {
    check(order.rank() == x.rank(), "permute: ", order, " does not name each axis of ", x.shape(), " once");
    Axes normal, inverse = Axes::filled(x.rank(), -1);
    for (int i = 0; i < order.rank(); ++i) {
        const int axis = normal_axis("permute", order[i], x.rank());
        check(inverse[axis] == -1, "permute: ", order, " does not name each axis of ", x.shape(), " once");
        normal.push_back(axis);
        inverse[axis] = i;
    }
    return view_of("permute", x, x.layout().permute(normal),
                   [inverse](const Tensor& g) { return permute(g, inverse); });
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
    const int a = normal_axis("transpose", axis_a, x.rank()), b = normal_axis("transpose", axis_b, x.rank());
    Layout layout = x.layout();
    std::swap(layout.shape[a], layout.shape[b]);
    std::swap(layout.strides[a], layout.strides[b]);
    return view_of("transpose", x, layout, [a, b](const Tensor& g) { return transpose(g, a, b); });
}

Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step) {
    axis = normal_axis("slice", axis, x.rank());
    check(step > 0, "slice: the step must be positive: got ", step, ": use flip to reverse");
    const std::int64_t n = x.shape()[axis];
    if (start < 0) start += n;
    if (stop < 0) stop += n;
    start = std::clamp<std::int64_t>(start, 0, n), stop = std::clamp<std::int64_t>(stop, start, n);
    step = std::min(step, std::max<std::int64_t>(n, 1));  // further than the end is the end
    const std::int64_t length = (stop - start + step - 1) / step;
    return view_of(
        "slice", x, x.layout().slice(axis, start, length, step),
        [shape = x.shape(), axis, start, step](const Tensor& g) { return place_slice(g, shape, axis, start, step); });
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
    axis = normal_axis("select", axis, x.rank());
    const std::int64_t n = x.shape()[axis];
    check(index >= -n && index < n, "select: index ", index, " is out of range for axis ", axis, " of ", x.shape());
    if (index < 0) index += n;
    return squeeze(slice(x, axis, index, index + 1), {axis});
}

Tensor expand(const Tensor& x, const Shape& shape) {
    if (x.shape() == shape) return x;
    check_shape("expand", shape);
    return view_of("expand", x, x.layout().expand("expand", shape),
                   [from = x.shape()](const Tensor& g) { return sum_to(g, from); });
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) { return expand(x, shape); }

Tensor squeeze(const Tensor& x, const Axes& axes) {
    const Axes normal = normal_axes("squeeze", axes, x.rank());
    Layout layout = x.layout();
    for (int i = normal.rank() - 1; i >= 0; --i) {
        const int axis = int(normal[i]);
        if (layout.shape[axis] != 1) {
            check(axes.rank() == 0, "squeeze: axis ", axis, " of ", x.shape(), " has size ", x.shape()[axis],
                  ", not 1");
            continue;
        }
        layout.shape.erase(axis), layout.strides.erase(axis);
    }
    return view_of("squeeze", x, layout, [from = x.shape()](const Tensor& g) { return reshape(g, from); });
}

Tensor unsqueeze(const Tensor& x, int axis) {
    axis = normal_axis("unsqueeze", axis, x.rank() + 1);
    Layout layout = x.layout();
    layout.shape.insert(axis, 1), layout.strides.insert(axis, 1);
    return view_of("unsqueeze", x, layout, [axis](const Tensor& g) { return squeeze(g, {axis}); });
}

Tensor flatten(const Tensor& x, int first, int last) {
    if (x.rank() == 0) return reshape(x, {1});
    first = normal_axis("flatten", first, x.rank()), last = normal_axis("flatten", last, x.rank());
    check(first <= last, "flatten: axis ", first, " comes after axis ", last);
    Shape shape;
    std::int64_t merged = 1;
    for (int i = 0; i < x.rank(); ++i) {
        if (i >= first && i <= last)
            merged *= x.shape()[i];
        else
            shape.push_back(x.shape()[i]);
        if (i == last) shape.push_back(merged);
    }
    return reshape(x, shape);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis) {
    axis = normal_axis("split", axis, x.rank());
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) {
        check(size >= 0, "split: a size is negative: ", size);
        total += size;
    }
    check(total == x.shape()[axis], "split: the sizes add up to ", total, ", axis ", axis, " of ", x.shape(), " has ",
          x.shape()[axis]);
    std::vector<Tensor> parts;
    std::int64_t at = 0;
    for (const std::int64_t size : sizes) {
        parts.push_back(x.with_layout(x.layout().slice(axis, at, size, 1)));
        at += size;
    }
    if (parts.empty()) return parts;
    return record_joint(
        "split", parts, {x},
        [axis, sizes, shape = x.shape(), dtype = x.dtype(), device = x.device()](std::span<const Tensor> gs) {
            std::vector<Tensor> whole;
            for (std::size_t i = 0; i < gs.size(); ++i) {
                Shape part = shape;
                part[axis] = sizes[i];
                whole.push_back(gs[i].defined() ? gs[i] : zeros(part, dtype, device));
            }
            return std::vector<Tensor>{cat(whole, axis)};
        });
}

std::vector<Tensor> split(const Tensor& x, int parts, int axis) {
    check(parts >= 1, "split: needs at least one part: got ", parts);
    const std::int64_t n = x.shape()[normal_axis("split", axis, x.rank())];
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < parts; ++i) sizes.push_back(n / parts + (i < n % parts));
    return split(x, sizes, axis);
}

std::vector<Tensor> chunk(const Tensor& x, int parts, int axis) {
    check(parts >= 1, "chunk: needs at least one part: got ", parts);
    const std::int64_t n = x.shape()[normal_axis("chunk", axis, x.rank())],
                       size = std::max<std::int64_t>(1, (n + parts - 1) / parts);
    std::vector<std::int64_t> sizes;
    for (std::int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
    if (sizes.empty()) sizes.push_back(0);
    return split(x, sizes, axis);
}

Tensor flip(const Tensor& x, const Axes& axes) {
    Layout layout = x.layout();
    if (axes.rank() > 0 && x.numel() > 0)
        for (const std::int64_t axis : normal_axes("flip", axes, x.rank())) {
            const int i = int(axis);
            layout.offset += (layout.shape[i] - 1) * layout.strides[i];
            layout.strides[i] = -layout.strides[i];
        }
    return record("flip", copied(x.with_layout(layout)), wrt(x, [axes](const Tensor& g) { return flip(g, axes); }));
}

Tensor detach(const Tensor& x) { return x.without_past(); }

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor clone(const Tensor& x) {
    return record("clone", copied(x), wrt(x, [](const Tensor& g) { return g; }));
}

Tensor to(const Tensor& x, Device device) {
    if (x.device() == device) return x;
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), device);
    transfer(x.is_contiguous() ? x : copied(x), y);
    return record("to", y, wrt(x, [from = x.device()](const Tensor& g) { return to(g, from); }));
}

Tensor cast(const Tensor& x, DType dtype) {
    if (x.dtype() == dtype) return x;
    const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
    kernels::copy(x, y);
    if (!is_floating(dtype)) return y;
    return record("cast", y, wrt(x, [from = x.dtype()](const Tensor& g) { return cast(g, from); }));
}

Tensor cat(const std::vector<Tensor>& xs, int axis) {
    check(!xs.empty(), "cat: needs at least one tensor");
    axis = normal_axis("cat", axis, xs[0].rank());
    Shape shape = xs[0].shape();
    DType dtype = xs[0].dtype();
    std::vector<std::int64_t> starts{0};
    for (const Tensor& x : xs) {
        check_devices("cat", {{"the first tensor", xs[0]}, {"a later one", x}});
        Shape others = x.shape(), expected = xs[0].shape();
        if (others.rank() == expected.rank()) others[axis] = expected[axis] = 0;
        check(others == expected, "cat: shapes differ in more than axis ", axis, ": ", xs[0].shape(), " and ",
              x.shape());
        dtype = promote(dtype, x.dtype());
        starts.push_back(starts.back() + x.shape()[axis]);
    }
    shape[axis] = starts.back();
    const Tensor y = Tensor::empty(shape, dtype, xs[0].device());
    std::vector<DType> dtypes;
    for (std::size_t i = 0; i < xs.size(); ++i) {
        kernels::copy(xs[i], y.with_layout(y.layout().slice(axis, starts[i], xs[i].shape()[axis], 1)));
        dtypes.push_back(xs[i].dtype());
    }
    return record_joint("cat", y, xs, [axis, starts, dtypes](std::span<const Tensor> gs) {
        std::vector<Tensor> parts;
        for (std::size_t i = 0; i + 1 < starts.size(); ++i)
            parts.push_back(cast(slice(gs[0], axis, starts[i], starts[i + 1]), dtypes[i]));
        return parts;
    });
}

Tensor stack(const std::vector<Tensor>& xs, int axis) {
    check(!xs.empty(), "stack: needs at least one tensor");
    axis = normal_axis("stack", axis, xs[0].rank() + 1);
    std::vector<Tensor> rows;
    for (const Tensor& x : xs) {
        check_devices("stack", {{"the first tensor", xs[0]}, {"a later one", x}});
        check(x.shape() == xs[0].shape(), "stack: shapes differ: ", xs[0].shape(), " and ", x.shape());
        rows.push_back(unsqueeze(x, axis));
    }
    return cat(rows, axis);
}

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after,
           double value) {
    check(int(before.size()) == x.rank() && int(after.size()) == x.rank(),
          "pad: needs a number per axis at each end: the shape is ", x.shape(), ", got ", before.size(), " and ",
          after.size());
    check_holds("pad", x.dtype(), value);
    Shape shape = x.shape();
    Layout source = x.layout();
    for (int i = 0; i < x.rank(); ++i) {
        const std::int64_t b = before[std::size_t(i)], a = after[std::size_t(i)];
        shape[i] += b + a;
        check(shape[i] >= 0, "pad: axis ", i, " of ", x.shape(), " cannot lose ", -(b + a), " elements");
        const std::int64_t first = std::max<std::int64_t>(0, -b),
                           kept = std::max<std::int64_t>(0, x.shape()[i] - first - std::max<std::int64_t>(0, -a));
        source = source.slice(i, first, kept, 1);
    }
    const Tensor y = full(shape, value, x.dtype(), x.device());
    Layout target = y.layout();
    for (int i = 0; i < x.rank(); ++i)
        target = target.slice(i, std::max<std::int64_t>(0, before[std::size_t(i)]), source.shape[i], 1);
    kernels::copy(x.with_layout(source), y.with_layout(target));
    return record("pad", y, wrt(x, [before, after](const Tensor& g) {
                      std::vector<std::int64_t> b, a;
                      for (const std::int64_t n : before) b.push_back(-n);
                      for (const std::int64_t n : after) a.push_back(-n);
                      return pad(g, b, a);
                  }));
}

Tensor repeat(const Tensor& x, const Shape& times) {
    check(times.rank() >= x.rank(), "repeat: needs a count for each axis of ", x.shape(), ": got ", times);
    Shape shape = times;
    for (int i = 0; i < times.rank(); ++i) {
        check(times[i] >= 0, "repeat: a count is negative: ", times);
        shape[i] = i < times.rank() - x.rank() ? 1 : x.shape()[i - (times.rank() - x.rank())];
    }
    Tensor y = reshape(x, shape);
    for (int i = 0; i < times.rank(); ++i) {
        if (times[i] == 1) continue;
        y = times[i] == 0 ? slice(y, i, 0, 0) : cat(std::vector<Tensor>(std::size_t(times[i]), y), i);
    }
    return &y.storage() == &x.storage() ? clone(y) : y;
}

Event copy_async_(const Tensor& destination, const Tensor& source) {
    check(destination.shape() == source.shape() && destination.dtype() == source.dtype(),
          "copy_async_: one shape and dtype are needed: got ", source.shape(), " ", source.dtype(), " to ",
          destination.shape(), " ", destination.dtype());
    check(destination.is_contiguous() && source.is_contiguous(), "copy_async_: both must be contiguous: use copy_");
    const Tensor& there = destination.device().kind == Device::cuda ? destination : source;
    const Tensor& here = destination.device().kind == Device::cuda ? source : destination;
    check(there.device().kind == Device::cuda && here.device().kind == Device::cpu && here.is_pinned(),
          "copy_async_: needs page-locked memory of the CPU (Tensor::empty_pinned) and a card: got ", source.device(),
          " and ", destination.device());
    transfer_async(source, destination);
    destination.storage().bump_version();
    Event done;
    done.record(Stream::current(there.device()));
    return done;
}

void copy_(const Tensor& destination, const Tensor& source) {
    check(!destination.layout().overlaps(), "copy_: the destination ", destination.shape(),
          " is an expanded view: several indices share one element");
    check(broadcast("copy_", destination.shape(), source.shape()) == destination.shape(), "copy_: the source ",
          source.shape(), " does not fit into ", destination.shape());
    const NoGrad scope;
    const bool same_storage = &destination.storage() == &source.storage();
    kernels::copy(same_storage ? copied(source) : to(source, destination.device()), destination);
    destination.storage().bump_version();
}

void fill_(const Tensor& destination, double value) {
    check(!destination.layout().overlaps(), "fill_: the destination ", destination.shape(),
          " is an expanded view: several indices share one element");
    check_holds("fill_", destination.dtype(), value);
    kernels::fill(destination, value);
    destination.storage().bump_version();
}

}  // namespace gradus
