#include "gradus/core/tensor.h"

#include <cstring>
#include <limits>

namespace gradus {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
    check_shape("empty", shape);
    check_device(device);
    Tensor x(new Body);
    x.body_->layout = Layout(shape);
    x.body_->dtype = dtype;
    x.body_->storage = Storage::allocate(std::size_t(shape.product()) * std::size_t(size_of(dtype)), device);
    return x;
}

Tensor Tensor::scalar(double value, DType dtype, Device device) {
    check_holds("scalar", dtype, value);
    Tensor x = empty({}, dtype, device);
    visit(dtype, [&](auto zero) {
        using E = decltype(zero);
        E element;
        if constexpr (std::is_same_v<E, bfloat16> || std::is_same_v<E, float16>)
            element = E(float(value));
        else
            element = E(value);
        copy_from_host(x, &element);
    });
    return x;
}

std::int64_t Tensor::size(int axis) const { return shape()[normal_axis("size", axis, rank())]; }

Tensor Tensor::grad() const { return body().past ? body().past->gradient() : Tensor(); }

Tensor Tensor::with_layout(const Layout& layout) const {
    Tensor x(new Body);
    x.body_->layout = layout;
    x.body_->dtype = dtype();
    x.body_->storage = body().storage;
    return x;
}

void Tensor::attach(Ref<Past> past, int output) const {
    check(bool(body_), "tensor: this handle is undefined: assign a tensor first");
    body_->past = std::move(past);
    body_->output = output;
}

Tensor Tensor::find(const void* word) {
    if (!word || !slab_holds(word, sizeof(Body))) return {};
    const Body* body = static_cast<const Body*>(word);
    if (body->self.load(std::memory_order_acquire) != word || !body->try_retain()) return {};
    Tensor x(const_cast<Body*>(body));
    body->release();
    return x;
}

void Tensor::become(const Tensor& other) const {
    check(bool(body_), "tensor: this handle is undefined: assign a tensor first");
    body_->layout = other.layout();
    body_->dtype = other.dtype();
    body_->storage = other.body().storage;
}

namespace {

/// As cast does it: truncated, NaN is 0, and beyond the range the nearest end.
std::int64_t saturated(double x) {
    if (x != x) return 0;
    if (x >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
    return x <= -0x1p63 ? std::numeric_limits<std::int64_t>::min() : std::int64_t(x);
}

}  // namespace

double Tensor::item_number() const {
    check(numel() == 1, "item: needs a tensor of one element: got shape ", shape());
    return visit(dtype(), [&](auto zero) {
        decltype(zero) element;
        copy_to_host(*this, &element);
        return double(element);
    });
}

std::int64_t Tensor::item_integer() const {
    check(numel() == 1, "item: needs a tensor of one element: got shape ", shape());
    return visit(dtype(), [&](auto zero) {
        decltype(zero) element;
        copy_to_host(*this, &element);
        if constexpr (std::is_integral_v<decltype(element)>)
            return std::int64_t(element);
        else
            return saturated(double(element));
    });
}

namespace {

/// Walks a layout's elements in logical order: move(dense index, pointer to the element).
template <class Move>
void walk(const Tensor& x, Move&& move) {
    const Layout& layout = x.layout();
    const int size = size_of(x.dtype());
    char* base = static_cast<char*>(x.address());
    const std::int64_t n = layout.numel();
    if (n == 0) return;
    std::int64_t index[max_rank] = {};
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        move(i, base + at * size);
        for (int axis = layout.rank() - 1; axis >= 0; --axis) {
            at += layout.strides[axis];
            if (++index[axis] < layout.shape[axis]) break;
            at -= layout.strides[axis] * layout.shape[axis];
            index[axis] = 0;
        }
    }
}

}  // namespace

void copy_to_host(const Tensor& x, void* destination) {
    const std::size_t size = std::size_t(size_of(x.dtype()));
    if (x.numel() == 0) return;
    if (x.is_contiguous()) {
        std::memcpy(destination, x.address(), std::size_t(x.numel()) * size);
        return;
    }
    walk(x, [&](std::int64_t i, char* element) {
        std::memcpy(static_cast<char*>(destination) + std::size_t(i) * size, element, size);
    });
}

void copy_from_host(const Tensor& x, const void* source) {
    const std::size_t size = std::size_t(size_of(x.dtype()));
    if (x.numel() == 0) return;
    check(!x.layout().overlaps(), "copy: the destination ", x.shape(),
          " is an expanded view: several indices share one element");
    x.storage().bump_version();
    if (x.is_contiguous()) {
        std::memcpy(x.address(), source, std::size_t(x.numel()) * size);
        return;
    }
    walk(x, [&](std::int64_t i, char* element) {
        std::memcpy(element, static_cast<const char*>(source) + std::size_t(i) * size, size);
    });
}

}  // namespace gradus
