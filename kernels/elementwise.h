// Walking operands of any layout and dtype in chunks of plain arrays, so that a formula is compiled for two or three
// types only.
//
// Note [Chunks]
// The result's elements are cut, in row-major order, into chunks of 1,024. An operand that already is a plain array of
// the type the formula computes in is read in place; any other is gathered (and converted) into a buffer in the
// first-level cache. So strides, broadcasting and the 16-bit floats cost a copy within the cache and no instantiation.
#pragma once

#include <span>

#include "gradus/kernels/pointwise.h"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cpu {

inline constexpr std::int64_t chunk = 1024;
inline constexpr std::int64_t chunk_bytes = chunk * 8;

/// The type a formula computes in for results of this dtype: f64, f32 (also for 16-bit floats) or i64 (all integers and
/// bool).
inline DType compute_type(DType type) {
    if (!is_floating(type)) return DType::i64;
    return type == DType::f64 ? DType::f64 : DType::f32;
}

/// n elements from one dtype to another. Floats to integers truncate and saturate, NaN gives 0; to bool is x != 0.
void convert(DType from, DType to, const void* source, void* target, std::int64_t n);

void gather(const Walk& walk, const char* base, int size, std::int64_t start, std::int64_t n, char* target);
void scatter(const Walk& walk, char* base, int size, std::int64_t start, std::int64_t n, const char* source);

/// y = formula(inputs): `formula(in, out, n)` works on plain arrays, inputs of type `in`, the result of type `out`.
using Formula = void (*)(const void* const* in, void* out, std::int64_t n);
void elementwise(Formula formula, DType in, DType out, std::span<const Operand> inputs, const Tensor& y);

}  // namespace gradus::kernels::cpu
