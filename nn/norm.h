// LayerNorm and RMSNorm: each vector brought to a common scale.
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/nn/module.h"

namespace gradus {

/// (x - x̄) / √(var + eps) · weight + bias over the trailing axes `shape`, with the biased variance. Starts as weight 1,
/// bias 0.
class LayerNorm final : public Layer<LayerNorm> {
  public:
    explicit LayerNorm(const Shape& shape, double eps = 1e-5, Device device = {});
    explicit LayerNorm(std::int64_t width, double eps = 1e-5, Device device = {})
        : LayerNorm(Shape{width}, eps, device) {}
    Tensor forward(const Tensor& x) const { return layer_norm(x, weight, bias, eps_); }
    void visit(Visitor& v) override {
        v("weight", weight);
        v("bias", bias);
    }
    double eps() const { return eps_; }
    Parameter weight, bias;

  private:
    double eps_;
};

/// x / √(mean x² + eps) · weight over the last axis. Zhang, Sennrich: "Root mean square layer normalization" (NeurIPS
/// 2019).
class RMSNorm final : public Layer<RMSNorm> {
  public:
    explicit RMSNorm(std::int64_t width, double eps = 1e-5, Device device = {});
    Tensor forward(const Tensor& x) const { return rms_norm(x, weight, eps_); }
    void visit(Visitor& v) override { v("weight", weight); }
    Parameter weight;

  private:
    double eps_;
};

}  // namespace gradus
