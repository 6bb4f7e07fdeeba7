// Dropout: in training each element is dropped with probability p.
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/nn/module.h"

namespace gradus {

/// Throws unless p is a probability.
inline double check_probability(const char* op, double p) {
    check(p >= 0 && p <= 1, op, ": the probability must be in [0, 1]: got ", p);
    return p;
}

/// x / (1 - p) where kept, 0 where dropped; x itself outside training. Draws from the thread's generator.
class Dropout final : public Layer<Dropout> {
  public:
    explicit Dropout(double p) : p_(check_probability("Dropout", p)) {}
    Tensor forward(const Tensor& x) const { return training() && p_ > 0 ? dropout(x, p_) : x; }
    void visit(Visitor&) override {}
    double p() const { return p_; }

  private:
    double p_;
};

}  // namespace gradus
