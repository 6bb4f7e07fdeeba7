// The vector forms of the elementary functions against the C library in double precision.
#include "gradus/kernels/simd.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gradus/tests/support.h"

namespace gradus {
namespace {

/// Limits hold with and without fused multiply-add.
/// The largest error over evenly spaced points, in units of the last place of the right result.
double worst_error(const std::function<f32x16(f32x16)>& f, const std::function<double(double)>& right, float low,
                   float high) {
    double worst = 0;
    constexpr int packs = 20000;
    for (int i = 0; i < packs; ++i) {
        f32x16 x;
        for (int j = 0; j < 16; ++j) x[j] = low + (high - low) * float(i * 16 + j) / float(packs * 16);
        const f32x16 y = f(x);
        for (int j = 0; j < 16; ++j) {
            const double r = right(double(x[j]));
            const float rounded = std::abs(float(r));
            const double unit =
                double(std::nextafter(rounded, std::numeric_limits<float>::infinity())) - double(rounded);
            worst = std::max(worst, std::abs(double(y[j]) - r) / unit);
        }
    }
    return worst;
}

}  // namespace

TEST_CASE("vector functions are right to the last places", "[simd]") {
    const auto exp = [](f32x16 x) { return math::exp(x); };
    const auto log = [](f32x16 x) { return math::log(x); };
    CHECK(worst_error(
              exp, [](double x) { return std::exp(x); }, -87, 88.7f) <= 1.5);
    CHECK(worst_error(
              exp, [](double x) { return std::exp(x); }, -1, 1) <= 1.5);
    CHECK(worst_error(
              log, [](double x) { return std::log(x); }, 1e-30f, 10) <= 1);
    CHECK(worst_error(
              log, [](double x) { return std::log(x); }, 0.5, 2) <= 1);
    CHECK(worst_error([](f32x16 x) { return math::log1p(x); }, [](double x) { return std::log1p(x); }, -0.99f, 3) <=
          1.2);
    CHECK(worst_error([](f32x16 x) { return math::expm1(x); }, [](double x) { return std::expm1(x); }, -5, 5) <= 2.5);
    CHECK(worst_error([](f32x16 x) { return math::tanh(x); }, [](double x) { return std::tanh(x); }, -12, 12) <= 3);
}

TEST_CASE("vector functions at the ends of the range", "[simd]") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const auto at = [](f32x16 (*f)(f32x16), float x) { return f(f32x16{} + x)[3]; };
    const auto exp = [](f32x16 x) { return math::exp(x); };
    const auto log = [](f32x16 x) { return math::log(x); };
    CHECK(at(exp, inf) == inf);
    CHECK(at(exp, -inf) == 0);
    CHECK(at(exp, 0) == 1);
    CHECK(at(exp, 89) == inf);
    CHECK(std::isnan(at(exp, nan)));
    CHECK(at(log, 0) == -inf);
    CHECK(at(log, inf) == inf);
    CHECK(at(log, 1) == 0);
    CHECK(std::isnan(at(log, -1)));
    CHECK(std::isnan(at(log, nan)));
    CHECK(at(log, 1e-40f) == Approx(std::log(1e-40)).epsilon(1e-5));
    CHECK(at([](f32x16 x) { return math::tanh(x); }, inf) == 1);
    CHECK(at([](f32x16 x) { return math::tanh(x); }, -inf) == -1);
}

}  // namespace gradus
