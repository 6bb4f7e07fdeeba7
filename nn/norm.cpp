#include "gradus/nn/norm.h"

namespace gradus {

LayerNorm::LayerNorm(const Shape& shape, double eps, Device device)
    : weight(ones(shape, DType::f32, device)), bias(zeros(shape, DType::f32, device)), eps_(eps) {
    check(shape.rank() >= 1, "LayerNorm: needs at least one axis");
    check(eps >= 0, "LayerNorm: eps must not be negative: got ", eps);
}

RMSNorm::RMSNorm(std::int64_t width, double eps, Device device) : weight(ones({width}, DType::f32, device)), eps_(eps) {
    check(eps >= 0, "RMSNorm: eps must not be negative: got ", eps);
}

}  // namespace gradus
