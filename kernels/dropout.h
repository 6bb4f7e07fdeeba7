// Dropout from Philox: the mask is never stored, it is drawn again wherever it is needed.
#pragma once

#include "gradus/core/random.h"
#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// p as 16-bit lanes are compared with it: an element is dropped where its lane is below. p = 1 drops all, p = 0 none.
inline std::uint32_t dropout_threshold(double p) { return std::uint32_t(std::lround(p * 65536)); }

/// 1 / (1 - p) for the p that the lanes can tell; 0 where nothing is kept.
inline double dropout_scale(double p) {
    const std::uint32_t threshold = dropout_threshold(p);
    return threshold < 65536 ? 65536.0 / (65536 - threshold) : 0;
}

namespace cpu {
void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y);
}
namespace cuda {
decltype(cpu::dropout) dropout;
}  // namespace cuda

/// y = x / (1 - p) where element e of a sample is kept (lane e % 8 of block e / 8 is at least p · 65536), else exactly
/// 0. x and y are row-major, floating, of one dtype. The elements are cut into draw.samples equal parts.
inline void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y) {
    GRADUS_DISPATCH("dropout", x.device(), dropout, x, p, draw, y);
}

}  // namespace gradus::kernels
