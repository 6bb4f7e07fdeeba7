#include "gradus/autograd/rules.h"

#include <cmath>

namespace gradus {

void check_devices(const char* op, std::initializer_list<NamedTensor> operands) {
    const NamedTensor* first = nullptr;
    for (const NamedTensor& operand : operands) {
        if (!operand.tensor.defined()) continue;
        if (!first) first = &operand;
        if (operand.tensor.device() == first->tensor.device()) continue;
        fail(op, ": the operands are on two devices: ", first->name, " ", first->tensor.shape(), " on ",
             first->tensor.device(), ", ", operand.name, " ", operand.tensor.shape(), " on ", operand.tensor.device(),
             ": move one with to(", operand.name, ", ", first->tensor.device(), ")");
    }
}

namespace {

int dtype_class(DType type) { return is_floating(type) ? 2 : is_integer(type) ? 1 : 0; }

}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
    if ((a.rank() == 0) != (b.rank() == 0)) {
        const DType with_axes = a.rank() == 0 ? b.dtype() : a.dtype(), without = a.rank() == 0 ? a.dtype() : b.dtype();
        if (dtype_class(with_axes) >= dtype_class(without)) return with_axes;
    }
    return promote(a.dtype(), b.dtype());
}

DType result_type(const Tensor& a, double b) {
    if (is_floating(a.dtype())) return a.dtype();
    if (b != std::floor(b)) return DType::f32;
    return a.dtype() == DType::boolean ? DType::i64 : a.dtype();
}

void check_floating(const char* op, const char* name, const Tensor& x) {
    check(is_floating(x.dtype()), op, ": ", name, " must be floating: got ", x.dtype(), ": use cast");
}

void check_bool(const char* op, const char* name, const Tensor& x) {
    check(x.dtype() == DType::boolean, op, ": ", name, " must be bool: got ", x.dtype(), ": compare, or cast to bool");
}

Tensor sum_to(const Tensor& g, const Shape& shape) {
    if (g.shape() == shape) return g;
    Axes stretched;
    const int shift = g.rank() - shape.rank();
    for (int i = 0; i < g.rank(); ++i)
        if (i < shift || (shape[i - shift] == 1 && g.shape()[i] != 1)) stretched.push_back(i);
    return reshape(stretched.rank() ? sum(g, stretched, true) : g, shape);
}

Shape reduced_shape(const Shape& shape, const Axes& axes, bool keep) {
    Shape out;
    for (int i = 0, a = 0; i < shape.rank(); ++i) {
        const bool gone = a < axes.rank() && axes[a] == i;
        a += gone;
        if (!gone)
            out.push_back(shape[i]);
        else if (keep)
            out.push_back(1);
    }
    return out;
}

}  // namespace gradus
