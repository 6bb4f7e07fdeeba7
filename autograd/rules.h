// What many rules and ops share: result dtypes, device checks, gradients brought back to an operand's shape.
#pragma once

#include <initializer_list>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"

namespace gradus {

struct NamedTensor {
    const char* name;
    const Tensor& tensor;
};
/// Throws unless all defined ones lie on one device; names op, argument, shapes, devices and the fix.
void check_devices(const char* op, std::initializer_list<NamedTensor> operands);

/// The dtype two operands meet in: a 0-d one does not raise the class (bool, integer, float) of one with axes.
DType result_type(const Tensor& a, const Tensor& b);
/// A host number: a whole one fits any integer dtype, any other turns integers into f32.
DType result_type(const Tensor& a, double b);

void check_floating(const char* op, const char* name, const Tensor& x);
void check_bool(const char* op, const char* name, const Tensor& x);

/// g summed over the axes that were stretched from `shape`.
Tensor sum_to(const Tensor& g, const Shape& shape);

/// An operand's shape and dtype, kept by a rule to bring its gradient back to them.
struct Form {
    explicit Form(const Tensor& x) : shape(x.shape()), dtype(x.dtype()) {}
    Tensor fit(const Tensor& g) const {
        const Tensor summed = sum_to(g, shape);
        return summed.dtype() == dtype ? summed : cast(summed, dtype);
    }
    Shape shape;
    DType dtype;
};

/// g where x > 0: relu's gradient, which its result gives as well as its operand.
Tensor relu_slope(const Tensor& g, const Tensor& x);

/// f(x), computed in f32 where x is a 16-bit float, so that a composed op rounds to 16 bits once.
template <class F>
Tensor in_f32(const Tensor& x, F&& f) {
    return size_of(x.dtype()) == 2 && is_floating(x.dtype()) ? cast(f(cast(x, DType::f32)), x.dtype()) : f(x);
}

/// Throws unless p is a probability.
void check_dropout(const char* op, double p);
/// The generator's next draw, or that of the thread's where none is given, for dropout of x; none is taken for p = 0
/// and p = 1, which need no numbers. Throws where x does not fall into the samples of the open step scope.
Draw dropout_draw(const char* op, const Tensor& x, double p, Generator* generator);
/// dropout of x with the numbers of `draw`.
Tensor drop(const Tensor& x, double p, const Draw& draw);

/// x's shape with the named axes set to 1, or dropped.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keep);

}  // namespace gradus
