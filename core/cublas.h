// cuBLAS: a switch and a yardstick beside the project's own products. It is loaded when it is first asked for; nothing
// links against it.
#pragma once

#include <cstdint>

#include "gradus/core/device.h"
#include "gradus/core/dtype.h"

namespace gradus {

/// A batch of matrices as cuBLAS sees them: column-major, `leading` elements from column to column.
struct BlasMatrix {
    const void* data;
    bool transposed;
    int leading;
    std::int64_t stride;  ///< from matrix to matrix; 0: all are one
};

/// c = a b, or c += a b: (m, k) (k, n) -> (m, n), of f32, f64, bf16 or f16. f32 stays f32 (never TF32); 16-bit floats
/// add up in f32.
struct BlasProduct {
    DType dtype;
    int m, n, k, batch;
    BlasMatrix a, b;
    void* c;
    int c_leading;
    std::int64_t c_stride;
    bool accumulate;
};

/// Gives the product to the card's current stream. Each call has a handle and a workspace to itself, so threads and
/// streams do not meet. Throws where cuBLAS is not found or refuses.
void blas_product(Device device, const BlasProduct& product);

}  // namespace gradus
