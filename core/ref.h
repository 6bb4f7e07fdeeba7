// A reference-counted base and its pointer: one word a handle, no second allocation.
#pragma once

#include <atomic>
#include <utility>

namespace gradus {

template <class T>
class RefCounted {
  public:
    void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
    /// For whoever holds no reference yet: false when the object is on its way out.
    bool try_retain() const {
        int count = count_.load(std::memory_order_relaxed);
        while (count > 0)
            if (count_.compare_exchange_weak(count, count + 1, std::memory_order_acquire)) return true;
        return false;
    }
    void release() const {
        if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            T::dispose(static_cast<T*>(const_cast<RefCounted*>(this)));
    }
    int use_count() const { return count_.load(std::memory_order_acquire); }
    static void dispose(T* object) { delete object; }

  protected:
    RefCounted() = default;
    RefCounted(const RefCounted&) = delete;
    RefCounted& operator=(const RefCounted&) = delete;

  private:
    mutable std::atomic<int> count_ = 0;
};

template <class T>
class Ref {
  public:
    Ref() = default;
    explicit Ref(T* object) : object_(object) {
        if (object_) object_->retain();
    }
    Ref(const Ref& other) : Ref(other.object_) {}
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() {
        if (object_) object_->release();
    }
    T* get() const { return object_; }
    T* operator->() const { return object_; }
    T& operator*() const { return *object_; }
    explicit operator bool() const { return object_ != nullptr; }
    bool operator==(const Ref&) const = default;

  private:
    T* object_ = nullptr;
};

}  // namespace gradus
