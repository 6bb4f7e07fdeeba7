// The errors of an index and of a target out of range, the same on every device.
#pragma once

#include "gradus/core/error.h"
#include "gradus/core/layout.h"

namespace gradus::kernels {

inline Dims position_of(const Shape& shape, std::int64_t flat) {
    Dims position = Dims::filled(shape.rank(), 0);
    for (int i = shape.rank() - 1; i >= 0; --i) position[i] = flat % shape[i], flat /= shape[i];
    return position;
}

/// Element `flat` of an index tensor holds `value`, which is not in [0, bound).
inline std::string index_fault(const char* op, const Shape& shape, std::int64_t flat, std::int64_t value,
                               std::int64_t bound) {
    const Dims position = position_of(shape, flat);
    if (bound == 0) return text(op, ": index ", value, " at position ", position, ": the axis is empty");
    return text(op, ": index ", value, " at position ", position, " is out of range: expected 0 to ", bound - 1);
}

/// Element `flat` of targets of this shape holds `value`, which is no class and not ignored.
inline std::string target_fault(const char* op, const Shape& shape, std::int64_t flat, std::int64_t value,
                                std::int64_t classes, std::int64_t ignore) {
    const std::string position = shape.rank() < 2 ? text(flat) : to_string(position_of(shape, flat));
    return text(op, ": a target is out of range: position ", position, " holds ", value, ", classes are [0, ", classes,
                ") and ignore_index is ", ignore);
}

}  // namespace gradus::kernels
