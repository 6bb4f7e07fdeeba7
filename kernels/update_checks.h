// What an optimizer's update asks of its tensors, on every device.
#pragma once

#include "gradus/kernels/update.h"

namespace gradus::kernels {

inline void check_operand(const char* op, const char* what, const Tensor& parameter, const Tensor& x, DType dtype) {
    check(x.shape() == parameter.shape(), op, ": the ", what, " has the shape ", x.shape(), ", the parameter ",
          parameter.shape());
    check(x.dtype() == dtype, op, ": the ", what, " is ", x.dtype(), ", expected ", dtype);
    check(x.device() == parameter.device(), op, ": the ", what, " is on ", x.device(), ", the parameter on ",
          parameter.device());
    check(x.is_contiguous(), op, ": the ", what, " of shape ", x.shape(), " is not contiguous");
}

inline void check_scale(const char* op, const GradientScale& scale, Device device) {
    const Tensor& x = scale.squares;
    check(!x.defined() || (x.rank() == 0 && x.dtype() == DType::f64 && x.device() == device), op,
          ": the sum of squares must be a 0-d f64 tensor on ", device);
}
inline void check_update(const SgdUpdate& u, Device device) {
    check(u.parameter.device() == device, "sgd: parameters on ", device, " and on ", u.parameter.device());
    check(u.parameter.is_contiguous(), "sgd: a parameter of shape ", u.parameter.shape(), " is not contiguous");
    check_operand("sgd", "gradient", u.parameter, u.gradient, u.parameter.dtype());
    if (u.buffer.defined())
        check_operand("sgd", "momentum buffer", u.parameter, u.buffer, state_dtype(u.parameter.dtype()));
}
inline void check_update(const AdamUpdate& u, Device device) {
    check(u.parameter.device() == device, "adam: parameters on ", device, " and on ", u.parameter.device());
    check(u.parameter.is_contiguous(), "adam: a parameter of shape ", u.parameter.shape(), " is not contiguous");
    check_operand("adam", "gradient", u.parameter, u.gradient, u.parameter.dtype());
    check_operand("adam", "mean", u.parameter, u.mean, state_dtype(u.parameter.dtype()));
    check_operand("adam", "mean square", u.parameter, u.square, state_dtype(u.parameter.dtype()));
    check(u.step.t >= 1, "adam: steps count from 1: got ", u.step.t);
}
/// What an update has written, its gradients excepted.
inline void bump_versions(std::span<const SgdUpdate> updates) {
    for (const SgdUpdate& u : updates) {
        u.parameter.storage().bump_version();
        if (u.buffer.defined()) u.buffer.storage().bump_version();
    }
}
inline void bump_versions(std::span<const AdamUpdate> updates) {
    for (const AdamUpdate& u : updates)
        u.parameter.storage().bump_version(), u.mean.storage().bump_version(), u.square.storage().bump_version();
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
