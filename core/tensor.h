// A tensor is a place, a layout and a past.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/core/device.h"
#include "gradus/core/dtype.h"
#include "gradus/core/layout.h"
#include "gradus/core/ref.h"
#include "gradus/core/slab.h"
#include "gradus/core/storage.h"

namespace gradus {

class Tensor;

/// What autograd hangs on a tensor: how it came about. Core stores it and never looks inside.
class Past : public RefCounted<Past> {
  public:
    virtual ~Past() = default;
    virtual Tensor gradient() const = 0;  ///< of a leaf; undefined where there is none
    virtual bool is_leaf() const = 0;
    static void dispose(Past* past) { past->dispose(); }

  protected:
    virtual void dispose() { delete this; }
};

/// A handle: copies share storage, layout and past. A default-made one is undefined.
class Tensor {
  public:
    Tensor() = default;

    /// Uninitialised elements. The device is always said.
    static Tensor empty(const Shape& shape, DType dtype, Device device);
    /// On the CPU, in page-locked memory: copies between it and a card can run while the host goes on (copy_async_).
    static Tensor empty_pinned(const Shape& shape, DType dtype);
    static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
    /// Elements copied from the host, row-major; without a shape a vector.
    template <class T>
    static Tensor from(const std::vector<T>& values, const Shape& shape, Device device);
    template <class T>
    static Tensor from(std::initializer_list<T> values, const Shape& shape, Device device) {
        return from(std::vector<T>(values), shape, device);
    }
    template <class T>
    static Tensor from(const std::vector<T>& values, Device device) {
        return from(values, Shape{std::int64_t(values.size())}, device);
    }
    template <class T>
    static Tensor from(std::initializer_list<T> values, Device device) {
        return from(std::vector<T>(values), device);
    }
    /// A 0-d tensor.
    static Tensor scalar(double value, DType dtype, Device device);

    bool defined() const { return bool(body_); }
    const Shape& shape() const { return body().layout.shape; }
    std::int64_t size(int axis) const;  ///< negative axes count from the end
    int rank() const { return body().layout.rank(); }
    std::int64_t numel() const { return body().layout.numel(); }
    DType dtype() const { return body().dtype; }
    Device device() const { return body().storage->device(); }
    const Layout& layout() const { return body().layout; }
    const Strides& strides() const { return body().layout.strides; }
    bool is_pinned() const { return storage().pinned(); }
    bool is_contiguous() const { return body().layout.contiguous(); }
    Storage& storage() const { return *body().storage; }
    std::uint32_t version() const { return storage().version(); }

    bool requires_grad() const { return bool(body().past); }
    bool is_leaf() const { return !body().past || body().past->is_leaf(); }
    Tensor grad() const;  ///< what backward accumulated in this leaf; undefined where there is none

    /// The first element's address; T must be the dtype's type.
    template <class T>
    T* data() const {
        check(dtype_of<T> == dtype(), "data: the tensor holds ", dtype(), ", asked for ", dtype_of<T>);
        return static_cast<T*>(address());
    }
    void* address() const { return static_cast<char*>(storage().data()) + body().layout.offset * size_of(dtype()); }
    /// The one element, converted to T.
    template <class T = double>
    T item() const {
        if constexpr (std::is_same_v<T, bool>)
            return item_number() != 0;
        else if constexpr (std::is_integral_v<T>)
            return T(item_integer());
        else
            return T(item_number());
    }
    /// All elements in row-major order, converted to T.
    template <class T>
    std::vector<T> to_vector() const;

    /// The same storage under another layout, without a past (the op layer adds one).
    Tensor with_layout(const Layout& layout) const;
    /// The same storage and layout under a new handle without a past.
    Tensor without_past() const { return with_layout(layout()); }

    /// The handle's own parts, for autograd.
    const Ref<Past>& past() const { return body().past; }
    int output() const { return body().output; }
    void attach(Ref<Past> past, int output = 0) const;
    /// Puts another tensor's storage, layout and dtype behind this handle and all its copies; the past stays. For
    /// Module::to and loading.
    void become(const Tensor& other) const;
    const void* identity() const { return body_.get(); }  ///< equal for copies of one handle
    int use_count() const { return body_.get() ? body_->use_count() : 0; }
    /// The live tensor whose identity() this word is; undefined where it is none. Any word may be asked for.
    static Tensor find(const void* word);

  private:
    struct Body : RefCounted<Body>, SlabAllocated<Body> {
        Layout layout;
        Ref<Storage> storage;
        Ref<Past> past;
        DType dtype = DType::f32;
        int output = 0;
        std::atomic<const void*> self = this;  ///< the mark find() knows a live one by
        ~Body() { self = nullptr; }
    };
    explicit Tensor(Body* body) : body_(body) {}
    const Body& body() const {
        check(bool(body_), "tensor: this handle is undefined: assign a tensor first");
        return *body_;
    }
    double item_number() const;
    std::int64_t item_integer() const;
    Ref<Body> body_;
};

/// As NumPy prints: nested brackets, four decimals, the middle of a long axis left out; dtype and device follow.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

/// Elements in logical order, moved one by one to the host; the CPU's memory is read in place.
void copy_to_host(const Tensor& x, void* destination);
void copy_from_host(const Tensor& x, const void* source);

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape, Device device) {
    check(std::int64_t(values.size()) == shape.product(), "from: ", values.size(), " values do not fill the shape ",
          shape);
    Tensor x = empty(shape, dtype_of<T>, device);
    if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> has no contiguous elements
        const std::vector<std::uint8_t> bytes(values.begin(), values.end());
        copy_from_host(x, bytes.data());
    } else {
        copy_from_host(x, values.data());
    }
    return x;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
    std::vector<T> values(static_cast<std::size_t>(numel()));
    visit(dtype(), [&](auto zero) {
        using E = decltype(zero);
        std::vector<std::conditional_t<std::is_same_v<E, bool>, std::uint8_t, E>> raw(values.size());
        copy_to_host(*this, raw.data());
        for (std::size_t i = 0; i < raw.size(); ++i) {
            if constexpr (std::is_same_v<E, bfloat16> || std::is_same_v<E, float16>)
                values[i] = T(float(raw[i]));
            else
                values[i] = T(raw[i]);
        }
    });
    return values;
}

}  // namespace gradus
