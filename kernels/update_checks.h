// What an optimizer's update asks of its tensors, on every device.
#pragma once

#include "gradus/core/tensor.h"

namespace gradus::kernels {

inline void check_operand(const char* op, const char* what, const Tensor& parameter, const Tensor& x, DType dtype) {
    check(x.shape() == parameter.shape(), op, ": the ", what, " has the shape ", x.shape(), ", the parameter ",
          parameter.shape());
    check(x.dtype() == dtype, op, ": the ", what, " is ", x.dtype(), ", expected ", dtype);
    check(x.device() == parameter.device(), op, ": the ", what, " is on ", x.device(), ", the parameter on ",
          parameter.device());
    check(x.is_contiguous(), op, ": the ", what, " of shape ", x.shape(), " is not contiguous");
}

/// f(T()) for the four floating dtypes; x must be contiguous.
template <class F>
void visit_floating(const char* op, const Tensor& x, F&& f) {
    check(x.is_contiguous(), op, ": a tensor of shape ", x.shape(), " is not contiguous");
    switch (x.dtype()) {
        case DType::f32:
            return f(float());
        case DType::f64:
            return f(double());
        case DType::bf16:
            return f(bfloat16());
        case DType::f16:
            return f(float16());
        default:
            fail(op, ": needs a floating dtype: got ", x.dtype());
    }
}

}  // namespace gradus::kernels
