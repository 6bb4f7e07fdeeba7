// The one way to start a kernel, and the words a kernel is written in; the same source for nvcc and for the emulator.
//
// Note [Kernel dialect]
// A .cu file includes this header and nothing of CUDA itself. It follows rules that let it run, thread by thread, on a
// CPU, where a missing barrier is found (docs/emulation.md): shared memory only by GRADUS_SHARED and
// GRADUS_DYNAMIC_SHARED at function scope; one barrier per source line; every lane that a mask names reaches the same
// warp operation; no return before a barrier or a warp operation; __syncwarp() between any two lanes' accesses to
// shared memory; no inline PTX outside kernels/ptx.cuh; no __constant__, textures, device malloc or function-local
// statics; nothing in a body depends on __CUDA_ARCH__.
#pragma once

#if defined(GRADUS_EMULATED)
#include "gradus/core/emulation/device.h"
#else
#include <cuda_runtime.h>
#endif

#include <cstddef>
#include <utility>

#include "gradus/core/cuda.h"
#include "gradus/core/error.h"

#if !defined(GRADUS_EMULATED)
/// An array in shared memory: GRADUS_SHARED(float, tile, [16][17]);
#define GRADUS_SHARED(T, name, dims) __shared__ __align__(16) T name dims
/// The shared memory whose size the launch gave: GRADUS_DYNAMIC_SHARED(float, row);
#define GRADUS_DYNAMIC_SHARED(T, name)                             \
    extern __shared__ __align__(16) unsigned char gradus_shared[]; \
    T* name = reinterpret_cast<T*>(gradus_shared)
#endif

/// Starts kernel<<<grid, block, shared_bytes>>>(arguments...) on the device's current stream; an empty grid is no work.
/// A template stands in parentheses: GRADUS_LAUNCH((softmax_kernel<float, 4>), device, grid, block, 0, x, y, n);
#define GRADUS_LAUNCH(kernel, device, grid, block, shared_bytes, ...) \
    ::gradus::launch(#kernel, kernel, device, grid, block, shared_bytes, __VA_ARGS__)

namespace gradus {
namespace detail {
/// Throws unless the grid and the block are within the limits of every card; true where there is work. Remembers the
/// name for errors that surface later.
bool check_launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes);
/// Lets a kernel have this much dynamic shared memory on the current card.
void allow_shared(const char* name, const void* kernel, Device device, std::size_t shared_bytes);
void after_launch(const char* name);
}  // namespace detail

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Device device, dim3 grid, dim3 block,
            std::size_t shared_bytes, Arguments&&... arguments) {
    if (!detail::check_launch(name, grid, block, shared_bytes)) return;
    const DeviceGuard guard(device);
    detail::allow_shared(name, reinterpret_cast<const void*>(kernel), device, shared_bytes);
#if defined(GRADUS_EMULATED)
    emulation::launch(name, kernel, grid, block, shared_bytes, current_cuda_stream(device),
                      std::forward<Arguments>(arguments)...);
#elif defined(__CUDACC__)
    kernel<<<grid, block, shared_bytes, current_cuda_stream(device)>>>(
        Parameters(std::forward<Arguments>(arguments))...);
#endif
    detail::after_launch(name);
}

}  // namespace gradus
