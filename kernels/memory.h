// Filling, copying between layouts and dtypes, and drawing random elements.
#pragma once

#include "gradus/core/philox.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

namespace cpu {
void copy(const Tensor& x, const Tensor& y);
void fill(const Tensor& y, double value);
void arange(const Tensor& y, double start, double step);
void uniform(const Tensor& y, double low, double high, const Draw& draw);
void normal(const Tensor& y, double mean, double deviation, const Draw& draw);
}  // namespace cpu

/// y = x, element by element in logical order; dtypes may differ (see cast in autograd/ops.h).
inline void copy(const Tensor& x, const Tensor& y) { dispatch("copy", y.device(), cpu::copy, x, y); }
inline void fill(const Tensor& y, double value) { dispatch("fill", y.device(), cpu::fill, y, value); }
/// y[i] = start + i step; y is contiguous.
inline void arange(const Tensor& y, double start, double step) {
    dispatch("arange", y.device(), cpu::arange, y, start, step);
}
/// Contiguous f32 or f64, numbered as Draw says; normal numbers by Box and Muller from pairs of uniform ones.
inline void uniform(const Tensor& y, double low, double high, const Draw& draw) {
    dispatch("uniform", y.device(), cpu::uniform, y, low, high, draw);
}
inline void normal(const Tensor& y, double mean, double deviation, const Draw& draw) {
    dispatch("normal", y.device(), cpu::normal, y, mean, deviation, draw);
}

}  // namespace gradus::kernels
