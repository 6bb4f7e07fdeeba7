// Products of small matrices that lie in the first-level cache: registers hold a tile of the result.
#pragma once

#include <cstdint>

#include "gradus/kernels/zip.h"

namespace gradus::kernels {

/// An operand whose elements are read one by one: element (i, k) is at data[i * row + k * column].
template <class T>
struct Scalars {
    const T* data;
    std::int64_t row, column;
};

namespace detail {

#ifdef __AVX512F__
inline constexpr int tile_packs = 4, tile_rows = 6;  // 24 of 32 registers
#else
inline constexpr int tile_packs = 1, tile_rows = 4;  // a pack is two or four registers
#endif

template <class T, int rows, int packs>
inline void product_tile(Scalars<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, std::int64_t depth,
                         bool add) {
    constexpr int L = lanes<T>;
    Pack<T> sum[rows][packs];
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < packs; ++p) sum[r][p] = add ? load(c + r * ldc + p * L) : Pack<T>{};
    for (std::int64_t d = 0; d < depth; ++d) {
        Pack<T> right[packs];
        for (int p = 0; p < packs; ++p) right[p] = load(b + d * ldb + p * L);
        for (int r = 0; r < rows; ++r) {
            const T left = a.data[r * a.row + d * a.column];
            for (int p = 0; p < packs; ++p) sum[r][p] += left * right[p];
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < packs; ++p) store(c + r * ldc + p * L, sum[r][p]);
}

template <class T, int rows, int packs>
inline void product_rows(Scalars<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, std::int64_t count,
                         std::int64_t depth, bool add) {
    std::int64_t i = 0;
    for (; i + rows <= count; i += rows)
        product_tile<T, rows, packs>({a.data + i * a.row, a.row, a.column}, b, ldb, c + i * ldc, ldc, depth, add);
    if constexpr (rows > 1) {
        if (i < count)
            product_rows<T, rows / 2, packs>({a.data + i * a.row, a.row, a.column}, b, ldb, c + i * ldc, ldc, count - i,
                                             depth, add);
    }
}

}  // namespace detail

/// c (rows, packs · lanes) = a (rows, depth) · b (depth, packs · lanes), or c += where `add`.
template <class T>
void small_product(Scalars<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, std::int64_t rows,
                   std::int64_t packs, std::int64_t depth, bool add) {
    using namespace detail;
    constexpr int L = lanes<T>, many = tile_packs, half = tile_packs > 1 ? tile_packs / 2 : 1;
    std::int64_t p = 0;
    for (; p + many <= packs; p += many)
        product_rows<T, tile_rows, many>(a, b + p * L, ldb, c + p * L, ldc, rows, depth, add);
    for (; p + half <= packs; p += half)
        product_rows<T, tile_rows * 2, half>(a, b + p * L, ldb, c + p * L, ldc, rows, depth, add);
    for (; p < packs; ++p) product_rows<T, tile_rows * 2, 1>(a, b + p * L, ldb, c + p * L, ldc, rows, depth, add);
}

/// to (columns, width) = from (rows, columns) transposed; columns of `to` from `rows` up to `width` are zeros. Rows of
/// `from` are whole packs, and so is width; rows of `to` up to whole packs are written.
template <class T>
void transpose_small(const T* from, std::int64_t ld_from, T* to, std::int64_t width, std::int64_t rows,
                     std::int64_t columns) {
    constexpr int L = lanes<T>;
    for (std::int64_t i = 0; i < width; i += L)
        for (std::int64_t d = 0; d < columns; d += L) {
            Pack<T> x[L], y[L];
            for (int r = 0; r < L; ++r) x[r] = i + r < rows ? load(from + (i + r) * ld_from + d) : Pack<T>{};
            for (int step = 1; step < L; step *= 2) {  // each step halves the way that an element still has to go
                for (int r = 0; r < L / 2; ++r) {
                    y[2 * r] = zip_low(x[r], x[r + L / 2]);
                    y[2 * r + 1] = zip_high(x[r], x[r + L / 2]);
                }
                for (int r = 0; r < L; ++r) x[r] = y[r];
            }
            for (int r = 0; r < L; ++r) store(to + (d + r) * width + i, x[r]);
        }
}

}  // namespace gradus::kernels
