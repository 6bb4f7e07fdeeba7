// Conversion between the eight dtypes.
#include "gradus/kernels/convert.h"

#include "gradus/kernels/elementwise.h"

namespace gradus::kernels::cpu {
namespace {

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
