// Positions: a vector for each place of a sequence, learned or sinusoidal.
#pragma once

#include "gradus/autograd/ops.h"
#include "gradus/core/random.h"
#include "gradus/nn/module.h"

namespace gradus {

/// PE(p, 2i) = sin(p / 10000^(2i/width)), PE(p, 2i+1) = cos of the same: (length, width) f32; an odd width ends with a
/// sine. Vaswani et al.: "Attention is all you need" (NeurIPS 2017), section 3.5.
Tensor sinusoidal_positions(std::int64_t length, std::int64_t width, Device device);

enum class PositionKind { learned, sinusoidal };

/// forward(length, first): rows first … first + length - 1 of the table, (length, width).
class Positions final : public Layer<Positions> {
  public:
    /// `longest` places. A learned table starts from N(0, deviation²); a sinusoidal one is a buffer that is not saved.
    Positions(PositionKind kind, std::int64_t longest, std::int64_t width, Generator& rng, double deviation = 1,
              Device device = {});
    Tensor forward(std::int64_t length, std::int64_t first = 0) const;
    void visit(Visitor& v) override {
        v("weight", weight);
        v("table", table);
    }
    std::int64_t longest() const { return weight.defined() ? weight.size(0) : table.size(0); }
    Parameter weight;  // (longest, width), where learned
    Buffer table;      // (longest, width), where sinusoidal
};

}  // namespace gradus
