#include "gradus/core/dtype.h"

#include <cmath>
#include <limits>

namespace gradus {

std::string to_string(DType type) {
    switch (type) {
        case DType::f32:
            return "f32";
        case DType::f64:
            return "f64";
        case DType::bf16:
            return "bf16";
        case DType::f16:
            return "f16";
        case DType::i64:
            return "i64";
        case DType::i32:
            return "i32";
        case DType::u8:
            return "u8";
        case DType::boolean:
            return "bool";
    }
    return "?";
}

DType promote(DType a, DType b) {
    if (a == b) return a;
    if (is_floating(a) && is_floating(b)) {
        if (a == DType::f64 || b == DType::f64) return DType::f64;
        return DType::f32;  // f32 with a half type, or the two half types
    }
    if (is_floating(a)) return a;
    if (is_floating(b)) return b;
    return a < b ? a : b;  // the integers stand in falling order of width, bool last
}

void check_holds(const char* op, DType type, double value) {
    if (type == DType::boolean) {
        check(value == 0 || value == 1, op, ": the value ", value, " does not fit into bool: use 0 or 1");
        return;
    }
    double low = -std::numeric_limits<double>::max(), high = -low;
    switch (type) {
        case DType::f32:
            high = std::numeric_limits<float>::max(), low = -high;
            break;
        case DType::bf16:
            high = 0x1.fep127, low = -high;
            break;
        case DType::f16:
            high = 65504, low = -high;
            break;
        case DType::i64:
            low = -0x1p63, high = 0x1p63 - 1024;
            break;
        case DType::i32:
            low = -0x1p31, high = 0x1p31 - 1;
            break;
        case DType::u8:
            low = 0, high = 255;
            break;
        default:
            break;
    }
    if (is_floating(type) && !std::isfinite(value)) return;
    check(value >= low && value <= high, op, ": the value ", value, " does not fit into ", type, ": its range is [",
          low, ", ", high, "]", is_floating(type) ? ", or use an infinity" : "");
    check(is_floating(type) || value == std::floor(value), op, ": the value ", value, " is not whole: ", type,
          " holds integers only");
}

}  // namespace gradus
