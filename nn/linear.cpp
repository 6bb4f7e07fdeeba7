#include "gradus/nn/linear.h"

#include <cmath>

#include "gradus/nn/init.h"

namespace gradus {

Linear::Linear(std::int64_t in, std::int64_t out, Generator& rng, Device device, bool with_bias) {
    check(in >= 0 && out >= 0, "Linear: sizes must not be negative: got ", in, " and ", out);
    const double bound = in > 0 ? 1 / std::sqrt(double(in)) : 0;
    weight = Parameter(Tensor::empty({out, in}, DType::f32, device));
    init::uniform(weight, -bound, bound, rng);
    if (!with_bias) return;
    bias = Parameter(Tensor::empty({out}, DType::f32, device));
    init::uniform(bias, -bound, bound, rng);
}

}  // namespace gradus
