// One element from one dtype to another, the same on every device.
#pragma once

#include <limits>
#include <type_traits>

#include "gradus/core/dtype.h"

namespace gradus::kernels {

template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Floats to integers truncate and saturate, NaN gives 0; to bool is x != 0; to 16 bits goes through f32.
template <class To, class From>
GRADUS_FN To convert_one(From x) {
    if constexpr (is_half_type<From>) {
        return convert_one<To>(float(x));
    } else if constexpr (std::is_same_v<To, bool>) {
        return x != From(0);
    } else if constexpr (is_half_type<To>) {
        return To(float(x));
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        constexpr double low = double(std::numeric_limits<To>::min()), high = double(std::numeric_limits<To>::max());
        if (x != x) return 0;
        if (double(x) <= low) return std::numeric_limits<To>::min();
        if (double(x) >= high) return std::numeric_limits<To>::max();
        return To(x);
    } else {
        return To(x);
    }
}

/// Element i of an array whose dtype is known at run time.
template <class To>
GRADUS_FN To load_as(DType type, const void* data, std::int64_t i) {
    switch (type) {
        case DType::f32:
            return convert_one<To>(static_cast<const float*>(data)[i]);
        case DType::f64:
            return convert_one<To>(static_cast<const double*>(data)[i]);
        case DType::bf16:
            return convert_one<To>(static_cast<const bfloat16*>(data)[i]);
        case DType::f16:
            return convert_one<To>(static_cast<const float16*>(data)[i]);
        case DType::i64:
            return convert_one<To>(static_cast<const std::int64_t*>(data)[i]);
        case DType::i32:
            return convert_one<To>(static_cast<const std::int32_t*>(data)[i]);
        case DType::u8:
            return convert_one<To>(static_cast<const std::uint8_t*>(data)[i]);
        default:
            return convert_one<To>(static_cast<const bool*>(data)[i]);
    }
}
template <class From>
GRADUS_FN void store_as(DType type, void* data, std::int64_t i, From x) {
    switch (type) {
        case DType::f32:
            static_cast<float*>(data)[i] = convert_one<float>(x);
            return;
        case DType::f64:
            static_cast<double*>(data)[i] = convert_one<double>(x);
            return;
        case DType::bf16:
            static_cast<bfloat16*>(data)[i] = convert_one<bfloat16>(x);
            return;
        case DType::f16:
            static_cast<float16*>(data)[i] = convert_one<float16>(x);
            return;
        case DType::i64:
            static_cast<std::int64_t*>(data)[i] = convert_one<std::int64_t>(x);
            return;
        case DType::i32:
            static_cast<std::int32_t*>(data)[i] = convert_one<std::int32_t>(x);
            return;
        case DType::u8:
            static_cast<std::uint8_t*>(data)[i] = convert_one<std::uint8_t>(x);
            return;
        default:
            static_cast<bool*>(data)[i] = convert_one<bool>(x);
    }
}

}  // namespace gradus::kernels
