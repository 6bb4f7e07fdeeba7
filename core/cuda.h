// The CUDA runtime of this build: NVIDIA's, or the emulated one, which has the same names. Only code of a build that
// has CUDA includes this.
#pragma once

#if defined(GRADUS_EMULATED)
#include "gradus/core/emulation/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif

#include <string>
#include <vector>

#include "gradus/core/device.h"

namespace gradus {

/// Throws Error with CUDA's name and text of a failure, and the kernel that was launched last, unless `status` says
/// success.
void cuda_check(cudaError_t status, const char* what);

/// For calls whose failure is told elsewhere, as in a destructor: CUDA must not tell it to whoever asks next.
inline void cuda_quiet(cudaError_t status) noexcept {
    if (status != cudaSuccess) cudaGetLastError();
}

namespace detail {
void forget_card_errors();  ///< for tests that break an emulated card and mend it again
}

/// Makes a card the current one of this thread for a scope. The one before comes back only if it has a context: making
/// it current would give it one, and so take memory on a card that nobody asked for.
class DeviceGuard {
  public:
    explicit DeviceGuard(Device device);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

  private:
    int before_ = 0;
};

/// How many cards there are, and why there is none: the text an error quotes.
int cuda_device_count();
const std::string& cuda_absence();
void append_cuda_devices(std::vector<DeviceInfo>& all);

/// Does this process hold a context, and with it memory, on the card? Only then may the card be made current in
/// passing.
bool has_context(int card);

/// The card of a stream that Stream has made.
Device device_of_stream(void* stream);

/// The stream that this thread's work on a card goes to; the card's own one unless a StreamGuard says otherwise.
cudaStream_t current_cuda_stream(Device device);

}  // namespace gradus
