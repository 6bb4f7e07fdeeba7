// Linear: an affine map of the last axis.
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/core/random.h"
#include "gradus/nn/module.h"

namespace gradus {

/// y = x Wᵀ + b: (…, in) -> (…, out). W is (out, in); W and b start from U(-1/√in, 1/√in).
class Linear final : public Layer<Linear> {
  public:
    Linear(std::int64_t in, std::int64_t out, Generator& rng, Device device = {}, bool with_bias = true);
    Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }
    void visit(Visitor& v) override {
        v("weight", weight);
        v("bias", bias);
    }
    Parameter weight, bias;  // (out, in), (out)
};

}  // namespace gradus
