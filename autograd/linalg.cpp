// Products and their rules.
#include <algorithm>
#include <cstdint>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/matmul.h"

namespace gradus {
namespace {

void check_product(const char* op, const Tensor& x) {
    check(x.dtype() != DType::boolean, op, ": has no product of bool: shape ", x.shape(), ", cast it first");
}

/// x in the dtype, x itself where it is that already.
Tensor in_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

/// The batch axes that both operands stretch to, then (m, n).
Shape product_shape(const Tensor& a, const Tensor& b) {
    const int rank = std::max(a.rank(), b.rank());
    Shape shape = Shape::filled(rank, 1);
    for (int i = 3; i <= rank; ++i) {
        const std::int64_t p = i <= a.rank() ? a.size(-i) : 1, q = i <= b.rank() ? b.size(-i) : 1;
        check(p == q || p == 1 || q == 1, "matmul: the batch axes do not broadcast: ", a.shape(), " and ", b.shape());
        shape[rank - i] = p == 1 ? q : p;
    }
    shape[rank - 2] = a.size(-2), shape[rank - 1] = b.size(-1);
    return shape;
}

/// x with y's batch axes, those it lacks with stride 0.
Tensor stretched(const Tensor& x, const Shape& product) {
    Shape shape = product;
    shape[shape.rank() - 2] = x.size(-2), shape[shape.rank() - 1] = x.size(-1);
    return shape == x.shape() ? x : x.with_layout(x.layout().expand("matmul", shape));
}

/// Both of rank 2 or more and of one dtype.
Tensor batched_product(const Tensor& a, const Tensor& b) {
    const Shape shape = product_shape(a, b);
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    kernels::matmul(stretched(a, shape), stretched(b, shape), y);
    return record(
        "matmul", y,
        wrt(a, [b = saved(b), to = a.shape()](const Tensor& g) { return sum_to(matmul(g, transpose(b())), to); }),
        wrt(b, [a = saved(a), to = b.shape()](const Tensor& g) { return sum_to(matmul(transpose(a()), g), to); }));
}

/// All axes but the last as one: (…, k) -> (rows, k).
Tensor as_rows(const Tensor& x) {
    std::int64_t rows = 1;
    for (int i = 0; i < x.rank() - 1; ++i) rows *= x.size(i);
    return reshape(x, {rows, x.size(-1)});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
    check_devices("matmul", {{"a", a}, {"b", b}});
    check_product("matmul", a), check_product("matmul", b);
    check(a.rank() > 0 && b.rank() > 0, "matmul: a 0-d operand has no axis to multiply along: ", a.shape(), " and ",
          b.shape(), ", use mul");
    check(a.size(-1) == b.size(b.rank() == 1 ? 0 : -2), "matmul: the inner sizes differ: ", a.shape(), " and ",
          b.shape());
    if (a.dtype() != b.dtype()) {
        const DType dtype = promote(a.dtype(), b.dtype());
        return matmul(in_dtype(a, dtype), in_dtype(b, dtype));
    }
    if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), {b.rank() == 1 ? 0 : -2});
    if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), {-1});
    if (a.rank() > 2 && b.rank() == 2) {  // one product instead of many, and one for b's gradient
        Shape shape = a.shape();
        shape[shape.rank() - 1] = b.size(1);
        return reshape(batched_product(as_rows(a), b), shape);
    }
    return batched_product(a, b);
}

namespace {

/// A handle on x wᵀ + bias, or on the relu of that, whose past is that of x wᵀ + bias.
Tensor affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Epilogue epilogue) {
    check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
    check_product(op, x), check_product(op, weight);
    check(weight.rank() == 2, op, ": the weight must be (out, in): got ", weight.shape());
    check(x.rank() > 0 && x.size(-1) == weight.size(1), op, ": x has the shape ", x.shape(), ", the weight takes (…, ",
          weight.size(1), "): ", weight.shape());
    DType dtype = promote(x.dtype(), weight.dtype());
    if (bias.defined()) {
        check_product(op, bias);
        check(bias.rank() == 1 && bias.size(0) == weight.size(0), op, ": the bias must be (", weight.size(0),
              ",) for a weight of shape ", weight.shape(), ": got ", bias.shape());
        dtype = promote(dtype, bias.dtype());
    }
    if (x.dtype() != dtype || weight.dtype() != dtype || (bias.defined() && bias.dtype() != dtype))
        return affine(op, in_dtype(x, dtype), in_dtype(weight, dtype), bias.defined() ? in_dtype(bias, dtype) : bias,
                      epilogue);

    Tensor rows = x.without_past();  // of this node, not of a reshape before it
    if (x.rank() != 2) rows = as_rows(rows);
    Tensor y = Tensor::empty({rows.size(0), weight.size(0)}, dtype, x.device());
    kernels::linear(rows, weight, bias, epilogue, y);
    if (x.rank() != 2) {
        Shape shape = x.shape();
        shape[shape.rank() - 1] = weight.size(0);
        y = y.with_layout(Layout(shape));
    }
    return record(op, y, wrt(x, [w = saved(weight)](const Tensor& g) { return matmul(g, w()); }),
                  wrt(weight, [x = saved(x)](const Tensor& g) { return matmul(transpose(as_rows(g)), as_rows(x())); }),
                  wrt(bias, [](const Tensor& g) { return sum(as_rows(g), {0}); }));
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return affine("linear", x, weight, bias, kernels::Epilogue::none);
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    check_floating("linear_relu", "x", x), check_floating("linear_relu", "weight", weight);
    const Tensor z = affine("linear_relu", x, weight, bias, kernels::Epilogue::relu);
    // The slope of relu asks for the sign of its operand alone, which the result has too.
    return record("linear_relu", z.without_past(),
                  wrt(z, [y = saved(z.without_past())](const Tensor& g) { return relu_slope(g, y()); }));
}

}  // namespace gradus
