#include "gradus/core/tensor.h"

#include <cstring>
#include <limits>

#include "gradus/core/transfer.h"

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

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype) {
    check_shape("empty_pinned", shape);
    Tensor x(new Body);
    x.body_->layout = Layout(shape);
    x.body_->dtype = dtype;
    x.body_->storage = Storage::allocate_pinned(std::size_t(shape.product()) * std::size_t(size_of(dtype)));
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

/// Walks a layout's elements in logical order: move(dense index, offset in elements from the first one).
template <class Move>
void walk(const Layout& layout, Move&& move) {
    const std::int64_t n = layout.numel();
    if (n == 0) return;
    std::int64_t index[max_rank] = {};
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        move(i, at);
        for (int axis = layout.rank() - 1; axis >= 0; --axis) {
            at += layout.strides[axis];
            if (++index[axis] < layout.shape[axis]) break;
            at -= layout.strides[axis] * layout.shape[axis];
            index[axis] = 0;
        }
    }
}

/// The elements between a view's first and last one, in the order of memory, on the host.
class Span {
  public:
    explicit Span(const Tensor& x) : x_(x), size_(std::size_t(size_of(x.dtype()))) {
        std::int64_t last = 0;
        for (int axis = 0; axis < x.rank(); ++axis) {
            const std::int64_t reach = x.strides()[axis] * (x.size(axis) - 1);
            (reach < 0 ? first_ : last) += reach;
        }
        bytes_.resize(std::size_t(last - first_ + 1) * size_);
        read_bytes(x, start(), bytes_.data(), bytes_.size());
    }
    char* at(std::int64_t offset) { return bytes_.data() + std::size_t(offset - first_) * size_; }
    void write_back() { write_bytes(x_, start(), bytes_.data(), bytes_.size()); }

  private:
    char* start() const { return static_cast<char*>(x_.address()) + first_ * std::int64_t(size_); }
    const Tensor& x_;
    std::size_t size_;
    std::int64_t first_ = 0;  // from the view's first element
    std::vector<char> bytes_;
};

}  // namespace

void copy_to_host(const Tensor& x, void* destination) {
    const std::size_t size = std::size_t(size_of(x.dtype()));
    if (x.numel() == 0) return;
    if (x.is_contiguous()) return read_bytes(x, x.address(), destination, std::size_t(x.numel()) * size);
    char* to = static_cast<char*>(destination);
    if (x.device().kind == Device::cpu) {
        const char* base = static_cast<const char*>(x.address());
        return walk(x.layout(), [&](std::int64_t i, std::int64_t offset) {
            std::memcpy(to + std::size_t(i) * size, base + offset * std::int64_t(size), size);
        });
    }
    Span span(x);
    walk(x.layout(),
         [&](std::int64_t i, std::int64_t offset) { std::memcpy(to + std::size_t(i) * size, span.at(offset), size); });
}

void copy_from_host(const Tensor& x, const void* source) {
    const std::size_t size = std::size_t(size_of(x.dtype()));
    if (x.numel() == 0) return;
    check(!x.layout().overlaps(), "copy: the destination ", x.shape(),
          " is an expanded view: several indices share one element");
    x.storage().bump_version();
    if (x.is_contiguous()) return write_bytes(x, x.address(), source, std::size_t(x.numel()) * size);
    const char* from = static_cast<const char*>(source);
    if (x.device().kind == Device::cpu) {
        char* base = static_cast<char*>(x.address());
        return walk(x.layout(), [&](std::int64_t i, std::int64_t offset) {
            std::memcpy(base + offset * std::int64_t(size), from + std::size_t(i) * size, size);
        });
    }
    Span span(x);
    walk(x.layout(), [&](std::int64_t i, std::int64_t offset) {
        std::memcpy(span.at(offset), from + std::size_t(i) * size, size);
    });
    span.write_back();
}

}  // namespace gradus
