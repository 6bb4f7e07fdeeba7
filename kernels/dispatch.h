// The one door into every kernel: picks the device's code.
//
// A family's header declares the same functions in the namespaces cpu (<family>.cpp) and cuda (<family>.cu) and calls
// them through GRADUS_DISPATCH. Without CUDA the latter are declared only.
#pragma once

#include <type_traits>
#include <utility>

#include "gradus/core/device.h"
#include "gradus/core/error.h"
#include "gradus/core/tensor.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/stream.h"
#endif

/// A comma within a template argument list of a dispatched function.
#define GRADUS_COMMA ,

namespace gradus::kernels {

#ifdef GRADUS_HAS_CUDA

namespace detail {
/// A tensor that a kernel of this stream reads or writes must not be reused before the kernel is done.
inline void use(void* stream, const Tensor& x) {
    if (x.defined()) x.storage().use_on(stream);
}
template <class T>
void use(void* stream, const T& argument) {
    if constexpr (requires { argument.each_tensor([](const Tensor&) {}); })
        argument.each_tensor([&](const Tensor& x) { use(stream, x); });
    else if constexpr (requires { argument.begin() != argument.end(); })
        for (const auto& part : argument) use(stream, part);
}
}  // namespace detail

/// Calls cpu(arguments...) or cuda(arguments...). On a card: marks the arguments' storages as used on the current
/// stream, and with GRADUS_SYNC=1 waits for the end, so that a fault carries the op's name.
template <class Cpu, class Cuda, class... Arguments>
decltype(auto) dispatch(const char* op, Device device, Cpu cpu, Cuda cuda, Arguments&&... arguments) {
    if (device.kind == Device::cpu) return cpu(std::forward<Arguments>(arguments)...);
    const CudaOp running(op, device);
    void* const stream = Stream::current(device).handle();
    (detail::use(stream, arguments), ...);
    if constexpr (std::is_void_v<decltype(cuda(std::forward<Arguments>(arguments)...))>) {
        cuda(std::forward<Arguments>(arguments)...);
        running.finish();
    } else {
        auto result = cuda(std::forward<Arguments>(arguments)...);
        running.finish();
        return result;
    }
}
#define GRADUS_DISPATCH(op, device, function, ...) \
    ::gradus::kernels::dispatch(op, device, cpu::function, cuda::function, __VA_ARGS__)

#else

template <class Cpu, class... Arguments>
decltype(auto) dispatch(const char* op, Device device, Cpu cpu, Arguments&&... arguments) {
    check(device.kind == Device::cpu, op, ": has no kernel for ", device, " in this build");
    return cpu(std::forward<Arguments>(arguments)...);
}
#define GRADUS_DISPATCH(op, device, function, ...) ::gradus::kernels::dispatch(op, device, cpu::function, __VA_ARGS__)

#endif

}  // namespace gradus::kernels
