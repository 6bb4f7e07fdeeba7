#include "gradus/nn/embedding.h"

#include "gradus/nn/init.h"

namespace gradus {

Embedding::Embedding(std::int64_t count, std::int64_t width, Generator& rng, std::int64_t padding_idx, Device device)
    : padding_idx_(padding_idx) {
    check(count >= 0 && width >= 0, "Embedding: sizes must not be negative: got ", count, " and ", width);
    check(padding_idx >= -1 && padding_idx < count, "Embedding: padding_idx ", padding_idx, " is not in [0, ", count,
          "), nor -1 for none");
    weight = Parameter(Tensor::empty({count, width}, DType::f32, device));
    reset(1, rng);
}

void Embedding::reset(double deviation, Generator& rng) {
    init::normal(weight, 0, deviation, rng);
    if (padding_idx_ >= 0) init::zeros(select(weight.without_past(), 0, padding_idx_));
}

}  // namespace gradus
