#include "gradus/tests/onnx_compare.h"

#include <cmath>
#include <cstring>

#include "gradus/core/dtype.h"
#include "gradus/core/error.h"
#include "gradus/core/layout.h"

namespace gradus::onnx {
namespace {

constexpr double rtol = 1e-3;
constexpr double atol = 1e-7;
// The data's bf16 is cut after its last bit, ours is rounded.
constexpr double bf16_unit = 0x1p-7;

template <class T>
T element(const Array& array, std::size_t at) {
    T value{};
    std::memcpy(&value, array.bytes.data() + at * sizeof value, sizeof value);
    return value;
}

bool is_float(Type type) {
    return type == Type::float32 || type == Type::float64 || type == Type::float16 || type == Type::bfloat16;
}

bool close(double got, double expected, double relative = rtol) {
    if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) && std::isnan(expected);
    if (std::isinf(got) || std::isinf(expected)) return got == expected;
    return std::abs(got - expected) <= atol + relative * std::abs(expected);
}

std::string shape_text(const Array& array) { return to_string(Shape(array.dims)); }

// Same bits, or for floats nearly the same value.
bool same(const Array& got, const Array& expected, std::size_t at) {
    if (is_float(expected.type)) {
        const double relative = expected.type == Type::bfloat16 ? bf16_unit : rtol;
        return close(value_at(got, at), value_at(expected, at), relative);
    }
    const std::size_t size = type_size(expected.type);
    return std::memcmp(got.bytes.data() + at * size, expected.bytes.data() + at * size, size) == 0;
}

}  // namespace

double value_at(const Array& array, std::size_t at) {
    switch (array.type) {
        case Type::float32:
            return double(element<float>(array, at));
        case Type::float64:
            return element<double>(array, at);
        case Type::float16:
            return double(float(element<float16>(array, at)));
        case Type::bfloat16:
            return double(float(element<bfloat16>(array, at)));
        case Type::int64:
            return double(element<std::int64_t>(array, at));
        case Type::int32:
            return double(element<std::int32_t>(array, at));
        case Type::uint8:
        case Type::boolean:
            return double(element<std::uint8_t>(array, at));
        default:
            fail("onnx: values of ", type_name(array.type), " are not compared");
    }
}

std::size_t count(const Array& array) {
    std::size_t elements = 1;
    for (const std::int64_t dim : array.dims) elements *= std::size_t(dim);
    return elements;
}

std::string difference(const Array& got, const Array& expected) {
    if (got.type != expected.type) {
        return text("type ", type_name(got.type), ", expected ", type_name(expected.type));
    }
    if (got.dims != expected.dims) return text("shape ", shape_text(got), ", expected ", shape_text(expected));
    std::size_t wrong = 0;
    std::string first;
    for (std::size_t at = 0; at < count(expected); ++at) {
        if (same(got, expected, at)) continue;
        if (wrong++ == 0)
            first = text("element ", at, " is ", value_at(got, at), ", expected ", value_at(expected, at));
    }
    return wrong == 0 ? "" : text(first, " (", wrong, " of ", count(expected), " are wrong)");
}

std::string dropout_difference(const Array& y, const Array& x, double p) {
    if (y.type != x.type || y.dims != x.dims) return text("dropout changed shape or type: ", shape_text(y));
    const double n = double(count(x));
    double kept = 0;
    for (std::size_t at = 0; at < count(x); ++at) {
        if (value_at(y, at) == 0) continue;
        ++kept;
        if (!close(value_at(y, at), value_at(x, at) / (1 - p))) {
            return text("element ", at, " is ", value_at(y, at), ", neither 0 nor ", value_at(x, at), " / (1 - ", p,
                        ")");
        }
    }
    if (std::abs(kept - n * (1 - p)) > 5 * std::sqrt(n * p * (1 - p))) {
        return text(kept, " of ", n, " elements kept with p = ", p);
    }
    return "";
}

}  // namespace gradus::onnx
