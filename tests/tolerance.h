// How far a result may lie from the truth: one table by dtype and by the length of the sums behind an element.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/tensor.h"

namespace gradus::tests {

/// |got - wanted| <= absolute + relative · |wanted|. NaN equals NaN, an infinity itself.
struct Tolerance {
    double relative = 0, absolute = 0;
};

inline constexpr Tolerance exactly{0, 0};
inline constexpr Tolerance six_digits{1e-5, 1e-6};    ///< for expected values written down with six digits
inline constexpr Tolerance three_digits{1e-3, 1e-3};  ///< for cases that say so

/// Half the gap between 1 and the next number.
inline double roundoff(DType type) {
    switch (type) {
        case DType::f64:
            return 0x1p-53;
        case DType::f32:
            return 0x1p-24;
        case DType::f16:
            return 0x1p-11;
        case DType::bf16:
            return 0x1p-8;
        default:
            return 0;
    }
}

/// A few roundings of the result, and of sums that are kept in f32 (f64 for f64) and whose error grows with √length.
/// An op that is composed of several rounds to its dtype after each of `steps`, also numbers larger than the result.
inline Tolerance tolerance(DType type, std::int64_t length = 1, int steps = 1) {
    if (!is_floating(type)) return exactly;
    const double sums = roundoff(type == DType::f64 ? DType::f64 : DType::f32) * std::sqrt(double(length));
    const double smallest = type == DType::f16 ? 0x1p-24 : 0.0;  // subnormal results keep fewer digits
    const double between = (steps - 1) * roundoff(type);
    return {2 * roundoff(type) + between + 16 * sums, 2 * between + 16 * sums + smallest};
}

/// A gradient is made of several ops, each of which rounds.
inline Tolerance gradient_tolerance(DType type, std::int64_t length = 1) {
    const double u = roundoff(type),
                 sums = roundoff(type == DType::f64 ? DType::f64 : DType::f32) * std::sqrt(double(length));
    return {8 * u + 32 * sums, 8 * u + 32 * sums};
}

/// Empty when all lies within the tolerance, else the worst element in words.
inline std::string differs(const std::vector<double>& got, const std::vector<double>& wanted, Tolerance allowed) {
    if (got.size() != wanted.size()) return text("got ", got.size(), " elements, wanted ", wanted.size());
    double worst = 0;
    std::string report;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if ((std::isnan(got[i]) && std::isnan(wanted[i])) || got[i] == wanted[i]) continue;
        const double limit = std::isfinite(wanted[i]) ? allowed.absolute + allowed.relative * std::abs(wanted[i]) : 0;
        double excess = std::abs(got[i] - wanted[i]) / limit;
        if (!std::isfinite(excess)) excess = INFINITY;
        if (excess <= 1 || excess <= worst) continue;
        worst = excess;
        report = text("element ", i, ": got ", got[i], ", wanted ", wanted[i], ", ", excess, " times the tolerance of ",
                      limit);
    }
    return report;
}
inline std::string differs(const Tensor& got, const std::vector<double>& wanted, Tolerance allowed) {
    return differs(got.to_vector<double>(), wanted, allowed);
}
/// By the dtype's own tolerance.
inline std::string differs(const Tensor& got, const std::vector<double>& wanted) {
    return differs(got, wanted, tolerance(got.dtype()));
}

}  // namespace gradus::tests
