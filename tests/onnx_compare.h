// How a computed array is held against an expected one: as ONNX's own runner does it.
#pragma once

#include <string>

#include "gradus/tests/onnx_reader.h"

namespace gradus::onnx {

/// Empty if `got` is as expected, else the first difference in words. Shapes, types and everything but floats must be
/// equal; floats may differ by 1e-7 + 1e-3 |expected|, bf16 by a unit of its last place; NaN equals NaN, an infinity
/// only itself.
std::string difference(const Array& got, const Array& expected);

/// The same for the output `y` of dropout in training, where ONNX's values are one draw of another generator: each
/// element must be 0 or x / (1 - p), and the number kept within five deviations of n (1 - p).
std::string dropout_difference(const Array& y, const Array& x, double p);

/// Element `at` as a double; exact for everything but 64-bit integers beyond 2^53.
double value_at(const Array& array, std::size_t at);

/// Elements of the array: 1 for a 0-d one.
std::size_t count(const Array& array);

}  // namespace gradus::onnx
