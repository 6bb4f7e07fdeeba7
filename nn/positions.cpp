#include "gradus/nn/positions.h"

#include <cmath>

#include "gradus/nn/init.h"

namespace gradus {

Tensor sinusoidal_positions(std::int64_t length, std::int64_t width, Device device) {
    check(length >= 0 && width >= 0, "sinusoidal_positions: sizes must not be negative: got ", length, " and ", width);
    std::vector<float> values(std::size_t(length * width));
    for (std::int64_t i = 0; i < width; ++i) {
        // In double: p / 10000^x loses whole radians in f32 at p = 5000.
        const double rate = std::pow(10000.0, -double(i - i % 2) / double(width));
        for (std::int64_t p = 0; p < length; ++p)
            values[std::size_t(p * width + i)] =
                float(i % 2 == 0 ? std::sin(double(p) * rate) : std::cos(double(p) * rate));
    }
    return Tensor::from(values, {length, width}, device);
}

Positions::Positions(PositionKind kind, std::int64_t longest, std::int64_t width, Generator& rng, double deviation,
                     Device device) {
    check(longest > 0, "Positions: needs at least one place: got ", longest);
    if (kind == PositionKind::sinusoidal) {
        table = Buffer(sinusoidal_positions(longest, width, device), false);
    } else {
        weight = Parameter(Tensor::empty({longest, width}, DType::f32, device));
        init::normal(weight, 0, deviation, rng);
    }
}

Tensor Positions::forward(std::int64_t length, std::int64_t first) const {
    check(first >= 0 && first + length <= longest(), "Positions: a sequence of ", first + length,
          " is longer than the ", longest(), " places there are: cut it, or build the model with more");
    return slice(weight.defined() ? static_cast<const Tensor&>(weight) : table, 0, first, first + length);
}

}  // namespace gradus
