// One product of two matrices on the calling thread: what the parallel kernels are made of.
#pragma once

#include <cstdint>

namespace gradus::kernels::cpu {

/// One matrix as a product reads it: row-major rows of `leading` elements, or the transpose of such a matrix.
template <class T>
struct Matrix {
    T* data;
    bool transposed;
    std::int64_t leading;

    Matrix rows_from(std::int64_t i) const { return {data + (transposed ? i : i * leading), transposed, leading}; }
    Matrix columns_from(std::int64_t j) const { return {data + (transposed ? j * leading : j), transposed, leading}; }
};

/// y (m, n) = a (m, k) b (k, n), or y += a b. All sizes are at least 1; y is not transposed. f32, f64, i64, i32, u8;
/// integers wrap around. f32 runs through oneDNN where the build has it, f32 otherwise and f64 through Eigen.
template <class T>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<const T>& a, const Matrix<const T>& b,
              const Matrix<T>& y, bool accumulate);

}  // namespace gradus::kernels::cpu
