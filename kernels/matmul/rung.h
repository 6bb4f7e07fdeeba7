// The ladder of matrix products on a card: every way to multiply, kept to be read, tested and measured against.
#pragma once

#include "gradus/kernels/matmul.h"

namespace gradus::kernels::cuda {

/// The ways to multiply, slowest first. Each is right for every shape and every stride.
enum class Rung {
    naive,         ///< a thread an element, straight from memory
    tiled,         ///< tiles of 16 x 16 in shared memory; what integers use
    register_64,   ///< tiles of 64 x 64, 4 x 4 elements a thread in registers, two buffers
    register_128,  ///< tiles of 128 x 128, 8 x 8 elements a thread; not for f64
};

/// What to multiply with, and into how many parts to cut the sum: decided by the sizes and the dtype alone.
struct Choice {
    Rung rung;
    int parts;
};
Choice choose(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype);

/// kernels::matmul with a given choice; bias (n) may be undefined.
void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& y, bool accumulate, Choice choice,
              Epilogue epilogue = Epilogue::none);

}  // namespace gradus::kernels::cuda
