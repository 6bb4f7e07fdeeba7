// The two 16-bit floats against formulas of their own, the promotion table, what a dtype can hold.
#include <cmath>
#include <cstring>
#include <limits>

#include "gradus/core/dtype.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

/// What the bits of a small float mean, by its definition: sign, exponent field, fraction.
double meaning(unsigned bits, int exponent_bits, int fraction_bits) {
    const unsigned fraction = bits & ((1u << fraction_bits) - 1);
    const int field = int(bits >> fraction_bits) & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
    if (field == (1 << exponent_bits) - 1) return fraction ? std::nan("") : sign * INFINITY;
    if (field == 0) return sign * std::ldexp(double(fraction), 1 - bias - fraction_bits);
    return sign * std::ldexp(double(fraction + (1u << fraction_bits)), field - bias - fraction_bits);
}

bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class Half>
void check_all_patterns(int exponent_bits, int fraction_bits) {
    int wrong_value = 0, wrong_way_back = 0;
    for (unsigned bits = 0; bits < 65536; ++bits) {
        Half x;
        x.bits = std::uint16_t(bits);
        const double value = meaning(bits, exponent_bits, fraction_bits);
        wrong_value += !same(float(x), value);
        const Half back(static_cast<float>(value));
        wrong_way_back += std::isnan(value) ? !std::isnan(float(back)) : back.bits != bits;
    }
    CHECK(wrong_value == 0);
    CHECK(wrong_way_back == 0);
}

/// Between two neighbours the nearer one is right, at the middle the even one.
template <class Half>
void check_rounding(int exponent_bits, int fraction_bits) {
    int wrong = 0;
    const unsigned infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    for (unsigned bits = 0; bits + 1 < infinity; ++bits) {
        const double low = meaning(bits, exponent_bits, fraction_bits),
                     high = meaning(bits + 1, exponent_bits, fraction_bits);
        const float middle = float((low + high) / 2);
        if (double(middle) != (low + high) / 2) continue;  // the deepest bf16 has no f32 between its neighbours
        const auto rounds_to = [&](float x) { return Half(x).bits; };
        wrong += rounds_to(middle) != (bits % 2 ? bits + 1 : bits);
        wrong += rounds_to(std::nextafter(middle, 0.0f)) != bits;
        wrong += rounds_to(std::nextafter(middle, INFINITY)) != bits + 1;
        wrong += rounds_to(-middle) != ((bits % 2 ? bits + 1 : bits) | 0x8000u);
    }
    CHECK(wrong == 0);
}

TEST_CASE("all 65536 patterns of bf16 and f16 mean what their definition says", "[core]") {
    check_all_patterns<bfloat16>(8, 7);
    check_all_patterns<float16>(5, 10);
}

TEST_CASE("bf16 and f16 round to nearest, halves to even", "[core]") {
    check_rounding<bfloat16>(8, 7);
    check_rounding<float16>(5, 10);
}

TEST_CASE("16-bit floats overflow to infinity exactly where they must", "[core]") {
    CHECK(float(float16(65504.0f)) == 65504.0f);
    CHECK(float(float16(std::nextafter(65520.0f, 0.0f))) == 65504.0f);
    CHECK(std::isinf(float(float16(65520.0f))));
    CHECK(std::isinf(float(bfloat16(std::numeric_limits<float>::max()))));
    CHECK(float(bfloat16(float(0x1.fep127))) == float(0x1.fep127));
    CHECK(float(float16(0x1p-25f)) == 0.0f);  // halfway between 0 and the smallest subnormal: even
    CHECK(float(float16(0x1.8p-25f)) == 0x1p-24f);
}

TEST_CASE("promotion of two dtypes is the written table", "[core]") {
    constexpr DType f32 = DType::f32, f64 = DType::f64, bf16 = DType::bf16, f16 = DType::f16, i64 = DType::i64,
                    i32 = DType::i32, u8 = DType::u8, boolean = DType::boolean;
    const DType order[] = {f32, f64, bf16, f16, i64, i32, u8, boolean};
    const DType table[8][8] = {
        {f32, f64, f32, f32, f32, f32, f32, f32},      {f64, f64, f64, f64, f64, f64, f64, f64},
        {f32, f64, bf16, f32, bf16, bf16, bf16, bf16}, {f32, f64, f32, f16, f16, f16, f16, f16},
        {f32, f64, bf16, f16, i64, i64, i64, i64},     {f32, f64, bf16, f16, i64, i32, i32, i32},
        {f32, f64, bf16, f16, i64, i32, u8, u8},       {f32, f64, bf16, f16, i64, i32, u8, boolean},
    };
    for (int a = 0; a < 8; ++a)
        for (int b = 0; b < 8; ++b) {
            INFO(to_string(order[a]) << " with " << to_string(order[b]));
            CHECK(to_string(promote(order[a], order[b])) == to_string(table[a][b]));
        }
}

TEST_CASE("dtypes have the names, sizes and C++ types they should", "[core]") {
    const std::string names[] = {"f32", "f64", "bf16", "f16", "i64", "i32", "u8", "bool"};
    const int sizes[] = {4, 8, 2, 2, 8, 4, 1, 1};
    for (int i = 0; i < 8; ++i) {
        const auto type = DType(i);
        CHECK(to_string(type) == names[i]);
        CHECK(size_of(type) == sizes[i]);
        CHECK(visit(type, [](auto zero) { return dtype_of<decltype(zero)>; }) == type);
        CHECK(visit(type, [](auto zero) { return int(sizeof zero); }) == sizes[i]);
    }
}

TEST_CASE("a value that a dtype cannot hold is named with the dtype's range", "[core]") {
    check_holds("fill", DType::f16, -65504);
    check_holds("fill", DType::f16, -INFINITY);
    check_holds("fill", DType::boolean, 1);
    check_holds("fill", DType::i32, -2147483648.0);
    CHECK(error_of([] { check_holds("fill", DType::f16, -1e10); }) ==
          "fill: the value -1e+10 does not fit into f16: its range is [-65504, 65504], or use an infinity");
    CHECK(error_of([] { check_holds("fill", DType::u8, 256); }) ==
          "fill: the value 256 does not fit into u8: its range is [0, 255]");
    CHECK(error_of([] { check_holds("fill", DType::i32, 0.5); }) ==
          "fill: the value 0.5 is not whole: i32 holds integers only");
    CHECK(error_of([] { check_holds("fill", DType::i64, std::nan("")); }) ==
          "fill: the value nan does not fit into i64: its range is [-9223372036854775808, 9223372036854774784]");
    CHECK(error_of([] { check_holds("fill", DType::boolean, 2); }) ==
          "fill: the value 2 does not fit into bool: use 0 or 1");
}

}  // namespace
}  // namespace gradus::tests
