// The one door into every kernel: picks the device's code.
#pragma once

#include <utility>

#include "gradus/core/device.h"
#include "gradus/core/error.h"

namespace gradus::kernels {

/// Calls the CPU function for a tensor on a CPU device.
template <class Function, class... Arguments>
decltype(auto) dispatch(const char* op, Device device, Function cpu, Arguments&&... arguments) {
    check(device.kind == Device::cpu, op, ": has no kernel for ", device, " in this build");
    return cpu(std::forward<Arguments>(arguments)...);
}

}  // namespace gradus::kernels
