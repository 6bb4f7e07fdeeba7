// Conversion between the eight dtypes.
#include <limits>

#include "gradus/kernels/elementwise.h"

namespace gradus::kernels::cpu {
namespace {

template <class To, class From>
To convert_one(From x) {
    if constexpr (std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>) {
        return convert_one<To>(float(x));
    } else if constexpr (std::is_same_v<To, bool>) {
        return x != From(0);
    } else if constexpr (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>) {
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

template <class To, class From>
void convert_array(const void* source, void* target, std::int64_t n) {
    const From* from = static_cast<const From*>(source);
    To* to = static_cast<To*>(target);
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert_one<To>(from[i]);
}

}  // namespace

void convert(DType from, DType to, const void* source, void* target, std::int64_t n) {
    visit(from,
          [&](auto a) { visit(to, [&](auto b) { convert_array<decltype(b), decltype(a)>(source, target, n); }); });
}

}  // namespace gradus::kernels::cpu
