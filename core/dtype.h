// Element types, the two 16-bit floats, and the switch from a DType to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "gradus/core/annotations.h"
#include "gradus/core/error.h"

namespace gradus {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i64, i32, u8, boolean };

/// bfloat16: the upper half of a float, rounded to nearest even.
struct bfloat16 {
    std::uint16_t bits = 0;
    bfloat16() = default;
    GRADUS_FN bfloat16(float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
        bits = std::uint16_t(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    GRADUS_FN operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
};

/// IEEE binary16, rounded to nearest even, subnormals kept.
struct float16 {
    std::uint16_t bits = 0;
    float16() = default;
    GRADUS_FN float16(float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
        std::uint32_t half;
        if (magnitude > 0x7f800000u) {
            half = 0x7e00u;
        } else if (magnitude >= 0x477ff000u) {  // rounds to 65520 or more
            half = 0x7c00u;
        } else if (magnitude < 0x38800000u) {  // subnormal: let the float unit round at 2^-24
            half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
        } else {
            half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        }
        bits = std::uint16_t(sign | half);
    }
    GRADUS_FN operator float() const {
        const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
        if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
        const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // exact, also for subnormals
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
};

GRADUS_FN constexpr int size_of(DType type) {
    switch (type) {
        case DType::f64:
        case DType::i64:
            return 8;
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::bf16:
        case DType::f16:
            return 2;
        case DType::u8:
        case DType::boolean:
            return 1;
    }
    return 0;
}
GRADUS_FN constexpr bool is_floating(DType type) { return type <= DType::f16; }
GRADUS_FN constexpr bool is_integer(DType type) {
    return type == DType::i64 || type == DType::i32 || type == DType::u8;
}

template <class T>
struct DTypeOf;  // no other type can be an element
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
    static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<bfloat16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<float16> {
    static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<long> {
    static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<long long> {
    static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
    static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
    static constexpr DType value = DType::boolean;
};
/// The DType of a C++ type.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;
static_assert(sizeof(long) == 8);

/// Calls `f` with a value-initialised T of the type that `type` names: visit(t, [&](auto zero) { using T =
/// decltype(zero); ... }).
template <class F>
decltype(auto) visit(DType type, F&& f) {
    switch (type) {
        case DType::f32:
            return f(float());
        case DType::f64:
            return f(double());
        case DType::bf16:
            return f(bfloat16());
        case DType::f16:
            return f(float16());
        case DType::i64:
            return f(std::int64_t());
        case DType::i32:
            return f(std::int32_t());
        case DType::u8:
            return f(std::uint8_t());
        case DType::boolean:
            break;
    }
    return f(bool());
}

std::string to_string(DType type);  ///< "f32", "bool", ...

/// The dtype that two operands of equal standing meet in: bool < u8 < i32 < i64 < floats; int with float gives the
/// float; f16 with bf16 gives f32.
DType promote(DType a, DType b);

/// Throws unless `value` can be held by `type` (finite values must not overflow, integers must be whole and in range).
void check_holds(const char* op, DType type, double value);

}  // namespace gradus
