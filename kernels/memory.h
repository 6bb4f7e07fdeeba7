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
namespace cuda {
decltype(cpu::copy) copy;
decltype(cpu::fill) fill;
decltype(cpu::arange) arange;
decltype(cpu::uniform) uniform;
decltype(cpu::normal) normal;
}  // namespace cuda

/// y = x, element by element in logical order; dtypes may differ (see cast in autograd/ops.h).
inline void copy(const Tensor& x, const Tensor& y) { GRADUS_DISPATCH("copy", y.device(), copy, x, y); }
inline void fill(const Tensor& y, double value) { GRADUS_DISPATCH("fill", y.device(), fill, y, value); }
/// y[i] = start + i step; y is contiguous.
inline void arange(const Tensor& y, double start, double step) {
    GRADUS_DISPATCH("arange", y.device(), arange, y, start, step);
}
/// Contiguous f32 or f64, numbered as Draw says; normal numbers by Box and Muller from pairs of uniform ones.
inline void uniform(const Tensor& y, double low, double high, const Draw& draw) {
    GRADUS_DISPATCH("uniform", y.device(), uniform, y, low, high, draw);
}
inline void normal(const Tensor& y, double mean, double deviation, const Draw& draw) {
    GRADUS_DISPATCH("normal", y.device(), normal, y, mean, deviation, draw);
}

}  // namespace gradus::kernels
