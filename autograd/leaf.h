// A leaf: a tensor that wants a gradient and has no op before it.
#pragma once

#include <mutex>
#include <vector>

#include "gradus/autograd/node.h"

namespace gradus {

/// Holds the gradient that backward accumulates. Several threads may add at once: each addition is under the lock.
class Leaf final : public Past, public SlabAllocated<Leaf> {
  public:
    Leaf(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {}
    Tensor gradient() const override;
    bool is_leaf() const override { return true; }

    /// Adds g, in place where it can; the first one is taken over, or copied when somebody else holds it.
    void accumulate(Tensor g);
    void assign(Tensor gradient);
    void add_hook(Hook hook);
    void move(DType dtype, Device device);  ///< the gradient is cast and copied along
    const Shape& shape() const { return shape_; }
    DType dtype() const { return dtype_; }
    Device device() const { return device_; }

  private:
    mutable std::mutex mutex_;
    Shape shape_;
    DType dtype_;
    Device device_;
    Tensor gradient_;
    std::vector<Hook> hooks_;
};

}  // namespace gradus
