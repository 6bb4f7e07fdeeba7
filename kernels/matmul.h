// Matrix products over strided batches; the contract, whatever the device.
#pragma once

#include "gradus/core/tensor.h"
#include "gradus/kernels/dispatch.h"

namespace gradus::kernels {

/// What happens to an element of a product after its bias, before it is stored.
enum class Epilogue { none, relu };

namespace cpu {
void matmul(const Tensor& a, const Tensor& b, const Tensor& y, bool accumulate);
void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, const Tensor& y);
}  // namespace cpu
namespace cuda {
decltype(cpu::matmul) matmul;
decltype(cpu::linear) linear;
}  // namespace cuda

/// y = a b, or y += a b: (…, m, k) (…, k, n) -> (…, m, n) for every index of the batch axes. a and b have y's batch
/// axes and any strides (0 where expanded); y is contiguous; all three have one dtype, bool excepted. k = 0 gives
/// zeros. A matrix whose rows or columns lie in order is read in place, whether transposed or not; others are copied
/// first. f32 and f64 multiply and add in their own precision, 16-bit floats in f32 and round once, integers wrap
/// around. The result does not depend on the number of threads.
inline void matmul(const Tensor& a, const Tensor& b, const Tensor& y, bool accumulate = false) {
    GRADUS_DISPATCH("matmul", y.device(), matmul, a, b, y, accumulate);
}

/// y = x weightᵀ + bias, or the relu of that (floats only): (rows, in) (out, in) (out) -> (rows, out). The bias may be
/// undefined and have any stride; the rest is as for matmul.
inline void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, const Tensor& y) {
    GRADUS_DISPATCH("linear", y.device(), linear, x, weight, bias, epilogue, y);
}

}  // namespace gradus::kernels
