// Shuffles of two packs, from which transposes are built.
#pragma once

#include "gradus/kernels/simd.h"

namespace gradus::kernels {

/// The lanes of a and b in turns: of their first halves, of their second halves.
inline f32x16 zip_low(const f32x16& a, const f32x16& b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline f32x16 zip_high(const f32x16& a, const f32x16& b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline f64x8 zip_low(const f64x8& a, const f64x8& b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline f64x8 zip_high(const f64x8& a, const f64x8& b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

}  // namespace gradus::kernels
