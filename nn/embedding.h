// Embedding: a table of one vector for each of `count` ids.
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/core/random.h"
#include "gradus/nn/module.h"

namespace gradus {

/// ids (…) -> (…, width): rows of the table. The table starts from N(0, 1); the padding row from 0, and it never gets a
/// gradient here.
class Embedding final : public Layer<Embedding> {
  public:
    /// padding_idx -1: no id is padding.
    Embedding(std::int64_t count, std::int64_t width, Generator& rng, std::int64_t padding_idx = -1,
              Device device = {});
    Tensor forward(const Tensor& ids) const { return embedding(ids, weight, padding_idx_); }
    void visit(Visitor& v) override { v("weight", weight); }
    std::int64_t padding_idx() const { return padding_idx_; }
    /// Draws the table anew from N(0, deviation²), the padding row 0.
    void reset(double deviation, Generator& rng);
    Parameter weight;  // (count, width)

  private:
    std::int64_t padding_idx_;
};

}  // namespace gradus
