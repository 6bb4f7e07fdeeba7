#include "gradus/core/stream.h"

#include <atomic>
#include <map>
#include <mutex>

#include "gradus/core/error.h"
#include "gradus/core/late_fault.h"
#include "gradus/core/thread_state.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cuda.h"
#endif

namespace gradus {
#ifdef GRADUS_HAS_CUDA
namespace {

cudaStream_t as_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }
cudaEvent_t as_event(const std::shared_ptr<void>& handle) { return static_cast<cudaEvent_t>(handle.get()); }

struct MadeStreams {
    std::mutex mutex;
    std::map<void*, Device> device;
};
MadeStreams& made_streams() {
    static MadeStreams* all = new MadeStreams;  // outlives every static tensor
    return *all;
}

cudaStream_t make_stream(Device device) {
    const DeviceGuard guard(device);
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const std::lock_guard lock(made_streams().mutex);
    made_streams().device.emplace(stream, device);
    return stream;
}

/// The card's own stream; never destroyed.
void* own_stream(Device device) {
    static std::atomic<void*> streams[max_cards];
    static std::mutex making;
    std::atomic<void*>& slot = streams[device.index];
    if (void* stream = slot.load(std::memory_order_acquire)) return stream;
    const std::lock_guard lock(making);
    if (!slot.load(std::memory_order_relaxed)) slot.store(make_stream(device), std::memory_order_release);
    return slot.load(std::memory_order_relaxed);
}

}  // namespace

Device device_of_stream(void* stream) {
    const std::lock_guard lock(made_streams().mutex);
    return made_streams().device.at(stream);
}

Stream::Stream(Device device) : device_(device) {
    check_device(device);
    // Its memory may be in the pool's lists by this name, so a stream is not destroyed but waits to be used no more.
    if (device.kind == Device::cuda) handle_ = std::shared_ptr<void>(make_stream(device), [](void*) {});
}

Stream Stream::current(Device device) {
    if (device.kind == Device::cpu) return {device, nullptr};
    void* stream = thread_state().streams[std::size_t(device.index)];
    if (!stream) stream = own_stream(device);
    return {device, std::shared_ptr<void>(std::shared_ptr<void>(), stream)};
}

void Stream::synchronize() const {
    if (device_.kind == Device::cpu) return;
    const DeviceGuard guard(device_);
    cuda_check(cudaStreamSynchronize(as_stream(*this)), "synchronize");
    tell_faults(device_);
}

StreamGuard::StreamGuard(const Stream& stream) : stream_(stream), before_(nullptr) {
    if (stream.device().kind == Device::cuda)
        before_ = std::exchange(thread_state().streams[std::size_t(stream.device().index)], stream.handle());
}
StreamGuard::~StreamGuard() {
    if (stream_.device().kind == Device::cuda) thread_state().streams[std::size_t(stream_.device().index)] = before_;
}

void Event::record(const Stream& stream) {
    ++records_;
    if (stream.device().kind == Device::cpu) return;
    const DeviceGuard guard(stream.device());
    device_ = stream.device();
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    handle_ = std::shared_ptr<void>(event, [](void* e) { cuda_quiet(cudaEventDestroy(static_cast<cudaEvent_t>(e))); });
    cuda_check(cudaEventRecord(event, as_stream(stream)), "cudaEventRecord");
}

bool Event::reached() const {
    if (!handle_) return true;
    const DeviceGuard guard(device_);
    const cudaError_t status = cudaEventQuery(as_event(handle_));
    if (status == cudaErrorNotReady) return cudaGetLastError(), false;
    cuda_check(status, "event");
    return true;
}

void Event::wait() const {
    if (!handle_) return;
    const DeviceGuard guard(device_);
    cuda_check(cudaEventSynchronize(as_event(handle_)), "event");
    tell_faults(device_);
}

void Event::wait(const Stream& stream) const {
    if (!handle_) return;
    if (stream.device().kind == Device::cpu) return wait();
    const DeviceGuard guard(stream.device());
    cuda_check(cudaStreamWaitEvent(as_stream(stream), as_event(handle_), 0), "event");
}

void synchronize(Device device) {
    check_device(device);
    if (device.kind == Device::cpu) return;
    const DeviceGuard guard(device);
    cuda_check(cudaDeviceSynchronize(), "synchronize");
    tell_faults(device);
}

#else

Stream::Stream(Device device) : device_(device) { check_device(device); }
Stream Stream::current(Device device) { return {device, nullptr}; }
void Stream::synchronize() const {}
StreamGuard::StreamGuard(const Stream& stream) : stream_(stream), before_(nullptr) {}
StreamGuard::~StreamGuard() = default;
void Event::record(const Stream&) { ++records_; }
bool Event::reached() const { return true; }
void Event::wait() const {}
void Event::wait(const Stream&) const {}
void synchronize(Device device) { check_device(device); }

#endif
}  // namespace gradus
