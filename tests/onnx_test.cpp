// The ONNX project's own test data, which none of us wrote, against the ops of Gradus.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/core/dtype.h"
#include "gradus/core/error.h"
#include "gradus/tests/onnx_cases.h"
#include "gradus/tests/onnx_reader.h"
#include "gradus/tests/onnx_skips.h"
#include "gradus/tests/support.h"

namespace gradus::onnx {
namespace {

namespace fs = std::filesystem;

// What ONNX's own runner allows: |got - expected| <= atol + rtol |expected|.
constexpr double rtol = 1e-3;
constexpr double atol = 1e-7;

template <class T>
double element(const Array& array, std::size_t at) {
    T value{};
    std::memcpy(&value, array.bytes.data() + at * sizeof value, sizeof value);
    return static_cast<double>(value);
}

double value_at(const Array& array, std::size_t at) {
    switch (array.type) {
        case Type::float32: return element<float>(array, at);
        case Type::float64: return element<double>(array, at);
        case Type::float16: return static_cast<double>(static_cast<float>(element_as<float16>(array, at)));
        case Type::bfloat16: return static_cast<double>(static_cast<float>(element_as<bfloat16>(array, at)));
        case Type::int64: return element<std::int64_t>(array, at);
        case Type::int32: return element<std::int32_t>(array, at);
        case Type::uint8:
        case Type::boolean: return element<std::uint8_t>(array, at);
        default: fail("onnx: values of ", type_name(array.type), " cannot be compared");
    }
}

}  // namespace
}  // namespace gradus::onnx
