// The error of an index that lies outside its axis, the same on every device.
#pragma once

#include "gradus/core/error.h"
#include "gradus/core/layout.h"

namespace gradus::kernels {

/// Element `flat` of an index tensor holds `value`, which is not in [0, bound).
[[noreturn]] inline void fail_index(const char* op, const Shape& shape, std::int64_t flat, std::int64_t value,
                                    std::int64_t bound) {
    Dims position = Dims::filled(shape.rank(), 0);
    for (int i = shape.rank() - 1; i >= 0; --i) position[i] = flat % shape[i], flat /= shape[i];
    if (bound == 0) fail(op, ": index ", value, " at position ", position, ": the axis is empty");
    fail(op, ": index ", value, " at position ", position, " is out of range: expected 0 to ", bound - 1);
}

}  // namespace gradus::kernels
