// Tensors from nothing.
#include <cmath>

#include "gradus/autograd/rules.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/pointwise.h"

namespace gradus {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
    check_holds("full", dtype, value);
    const Tensor y = Tensor::empty(shape, dtype, device);
    kernels::fill(y, value);
    return y;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }
Tensor ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }
Tensor full_like(const Tensor& x, double value) { return full(x.shape(), value, x.dtype(), x.device()); }
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

Tensor arange(double start, double stop, double step, DType dtype, Device device) {
    check(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
          "arange: start, stop and a step other than 0 must be finite: got ", start, ", ", stop, ", ", step);
    check(dtype != DType::boolean, "arange: bool holds no range: use an integer dtype");
    const double count = std::max(0.0, std::ceil((stop - start) / step));
    check(count < 0x1p60, "arange: too many elements: ", count);
    if (count > 0) check_holds("arange", dtype, start), check_holds("arange", dtype, start + (count - 1) * step);
    const Tensor y = Tensor::empty({std::int64_t(count)}, dtype, device);
    kernels::arange(y, start, step);
    return y;
}

Tensor eye(std::int64_t rows, std::int64_t columns, DType dtype, Device device) {
    check(rows >= 0 && columns >= 0, "eye: sizes must not be negative: got ", rows, " and ", columns);
    const Tensor y = zeros({rows, columns}, dtype, device);
    const std::int64_t n = std::min(rows, columns);
    if (n > 0) kernels::fill(y.with_layout(Layout({n}, {columns + 1}, 0)), 1);
    return y;
}

Tensor eye(std::int64_t n, DType dtype, Device device) { return eye(n, n, dtype, device); }

namespace {

template <class Draws>
Tensor drawn(const char* op, const Shape& shape, DType dtype, Device device, Generator* generator, Draws&& draws) {
    check(is_floating(dtype), op, ": the dtype must be floating: got ", dtype);
    const Draw draw = (generator ? *generator : default_generator()).next();
    const bool half = size_of(dtype) == 2;
    const Tensor y = Tensor::empty(shape, half ? DType::f32 : dtype, device);
    draws(y, draw);
    return half ? cast(y, dtype) : y;
}

}  // namespace

Tensor uniform(const Shape& shape, double low, double high, DType dtype, Device device, Generator* generator) {
    check(std::isfinite(low) && std::isfinite(high) && low <= high, "uniform: needs finite low <= high: got ", low,
          " and ", high);
    return drawn("uniform", shape, dtype, device, generator,
                 [&](const Tensor& y, const Draw& draw) { kernels::uniform(y, low, high, draw); });
}

Tensor normal(const Shape& shape, double mean, double deviation, DType dtype, Device device, Generator* generator) {
    check(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0,
          "normal: needs a finite mean and deviation >= 0: got ", mean, " and ", deviation);
    return drawn("normal", shape, dtype, device, generator,
                 [&](const Tensor& y, const Draw& draw) { kernels::normal(y, mean, deviation, draw); });
}

}  // namespace gradus
