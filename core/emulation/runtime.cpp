// Streams, events and copies of the emulated runtime: what is enqueued, and when it runs.
#include "gradus/core/emulation/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <sched.h>

#include "gradus/core/emulation/memory.h"
#include "gradus/core/emulation/options.h"
#include "gradus/core/emulation/sanitizer.h"
#include "gradus/core/emulation/scheduler.h"

using namespace gradus::emulation;

/// What an event has seen; shared with the operations that wait for it, which may outlive the handle.
struct Moment {
    std::uint64_t recorded = 0, completed = 0;  // the records given so far, and those whose turn has come
    GradusStream* stream = nullptr;
    std::chrono::steady_clock::time_point time;
    char token = 0;
};
struct GradusEvent {
    int device;
    std::shared_ptr<Moment> moment = std::make_shared<Moment>();
};

namespace {

struct Operation {
    std::function<std::string()> work;  ///< returns what went wrong
    std::uint32_t devices = 0;          ///< whose memory it may touch
    std::shared_ptr<Moment> record, wait;
    std::uint64_t version = 0;
    char token = 0;
};

/// One lock for everything, of atomics that ThreadSanitizer does not see: it must not order what CUDA leaves open.
class Lock {
  public:
    Lock() {
        const void* mine = &thread_mark;
        if (owner.load(std::memory_order_relaxed) == mine) {
            ++depth;
            return;
        }
        for (const void* nobody = nullptr; !owner.compare_exchange_weak(nobody, mine, std::memory_order_acquire);
             nobody = nullptr)
            sched_yield();
        depth = 1;
    }
    ~Lock() {
        if (--depth == 0) owner.store(nullptr, std::memory_order_release);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

  private:
    static inline std::atomic<const void*> owner = nullptr;
    static inline int depth = 0;
    static inline thread_local char thread_mark = 0;
};

}  // namespace

struct GradusStream {
    int device;
    std::deque<std::unique_ptr<Operation>> queue;
    void* tsan = nullptr;
    char done = 0;
};

namespace {

struct Card {
    cudaError_t error = cudaSuccess;  ///< a fault of a kernel stays
    std::uint32_t peers = 0;
    bool context = false;
    std::map<const void*, int> dynamic_shared;  ///< what cudaFuncSetAttribute has allowed each kernel
};
struct Machine {
    Card cards[most_devices];
    std::vector<GradusStream*> streams;
    std::string report;
    std::uint64_t random = 12345;
    std::int64_t waits = 0;  // of the host
};
Machine& machine() {
    static Machine* all = new Machine;  // outlives every static tensor
    return *all;
}
thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}
/// The card's lasting error, if it has one.
cudaError_t fault() { return machine().cards[current].error; }

void fail_card(int device, cudaError_t error, const std::string& report) {
    Card& card = machine().cards[device];
    if (card.error != cudaSuccess) return;
    card.error = error;
    machine().report = report;
}

// ---- running what was given ----

void run_until(GradusStream* stream, const Moment& moment, std::uint64_t version);

/// Runs the first operation of a stream, after what it waits for. With ThreadSanitizer a stream is a thread of its own:
/// what the host wrote before it gave the operation comes before it, and nothing else.
void run_first(GradusStream* stream) {
    if (const Operation& first = *stream->queue.front(); first.wait && first.wait->completed < first.version) {
        GradusStream* other = first.wait->stream;
        if (other == stream || other->queue.empty()) {
            fail_card(stream->device, cudaErrorLaunchFailure, "a stream waits for an event that can never come");
            stream->queue.pop_front();
            return;
        }
        const std::shared_ptr<Moment> moment = first.wait;
        run_until(other, *moment, first.version);
    }
    Operation* operation = stream->queue.front().release();
    stream->queue.pop_front();
    // A host thread's start, with its thread-local variables, comes before all that it runs for others.
    GRADUS_TSAN(static char arrival; static thread_local bool arrived = false;
                if (!std::exchange(arrived, true)) __tsan_release(&arrival);)
    GRADUS_TSAN(void* host = __tsan_get_current_fiber(); __tsan_switch_to_fiber(stream->tsan, 1);
                __tsan_acquire(&arrival); __tsan_acquire(&operation->token);
                if (operation->wait) __tsan_acquire(&operation->wait->token);)
    const bool lost = machine().cards[stream->device].error != cudaSuccess;
    if (operation->work && !lost) {
        open_devices(operation->devices, stream->device);
        const std::string report = operation->work();
        if (!report.empty())
            fail_card(stream->device,
                      report.find("access to") != std::string::npos || report.find("touched") != std::string::npos
                          ? cudaErrorIllegalAddress
                          : cudaErrorLaunchFailure,
                      report);
    }
    if (operation->record) {
        GRADUS_TSAN(__tsan_release(&operation->record->token);)
        operation->record->completed = std::max(operation->record->completed, operation->version);
    }
    GRADUS_TSAN(__tsan_release(&stream->done); __tsan_switch_to_fiber(host, 1);)
    if (operation->record)  // the clock is the host's: it writes to the host's stack
        operation->record->time = std::chrono::steady_clock::now();
#if !defined(GRADUS_EMULATION_TSAN)
    delete operation;  // under ThreadSanitizer its memory must not be used again for something unrelated
#endif
}

void run_until(GradusStream* stream, const Moment& moment, std::uint64_t version) {
    while (moment.completed < version && !stream->queue.empty()) run_first(stream);
}

void run_all(GradusStream* stream) {
    while (!stream->queue.empty()) run_first(stream);
}

/// After running something: the host's hands off the cards again.
void close_devices() { open_devices(0, -1); }

constexpr std::size_t longest_queue = 256;

void push(GradusStream* stream, std::unique_ptr<Operation> operation) {
    GRADUS_TSAN(__tsan_release(&operation->token);)
    stream->queue.push_back(std::move(operation));
    Machine& all = machine();
    switch (options().streams) {
        case Options::Streams::lazy:
            if (stream->queue.size() < longest_queue) return;
            run_all(stream);
            break;
        case Options::Streams::eager:
            run_all(stream);
            break;
        case Options::Streams::random:
            for (int i = 0; i < 2; ++i) {
                all.random = all.random * 6364136223846793005ull + options().seed * 2 + 1;
                GradusStream* other = all.streams[(all.random >> 33) % all.streams.size()];
                if (!other->queue.empty() && (all.random >> 20 & 1)) run_first(other);
            }
            break;
    }
    close_devices();
}

std::uint32_t reach(int device) { return 1u << device | machine().cards[device].peers; }

cudaError_t check_stream(cudaStream_t stream) {
    if (stream) return machine().cards[stream->device].error;
    std::fprintf(stderr, "gradus emulator: work for the legacy default stream: give an explicit stream\n");
    return cudaErrorInvalidResourceHandle;
}

cudaError_t copy(void* target, const void* source, std::size_t bytes, std::uint32_t devices, cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    auto operation = std::make_unique<Operation>();
    operation->devices = devices;
    const bool from_pageable = owner_of(source) == pageable, to_pageable = owner_of(target) == pageable;
    if (from_pageable) {  // CUDA has taken the bytes when the call returns
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(source),
                                                          static_cast<const char*>(source) + bytes);
        operation->work = [=] {
            GRADUS_TSAN(__tsan_write_range(target, bytes);)
            std::memcpy(target, staged->data(), bytes);
            return std::string();
        };
    } else {
        operation->work = [=] {
            GRADUS_TSAN(__tsan_read_range(const_cast<void*>(source), bytes); __tsan_write_range(target, bytes);)
            std::memcpy(target, source, bytes);
            return std::string();
        };
    }
    push(stream, std::move(operation));
    if (to_pageable) return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

}  // namespace

// ---- launches ----

void gradus::emulation::enqueue(Launch launch, cudaStream_t stream) {
    const Lock lock;
    if (check_stream(stream) != cudaSuccess) return void(remember(check_stream(stream)));
    const std::uint64_t threads = std::uint64_t(launch.block.x) * launch.block.y * launch.block.z;
    const auto& allowed = machine().cards[stream->device].dynamic_shared;
    const auto found = allowed.find(launch.function);
    if (found != allowed.end() && launch.shared_bytes > std::size_t(found->second))
        return void(remember(cudaErrorInvalidValue));
    launch.shared_limit = found == allowed.end() ? 48 << 10 : 227 << 10;
    if (threads == 0 || threads > 1024 || launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0 ||
        launch.grid.y > 65535 || launch.grid.z > 65535 || launch.grid.x > 0x7fffffffu ||
        launch.shared_bytes > 227 * 1024)
        return void(remember(cudaErrorInvalidConfiguration));
    auto operation = std::make_unique<Operation>();
    operation->devices = reach(stream->device);
    operation->work = [launch = std::move(launch)] { return run(launch); };
    push(stream, std::move(operation));
}

void gradus::emulation::enqueue_work(cudaStream_t stream, std::function<void()> work) {
    const Lock lock;
    if (check_stream(stream) != cudaSuccess) return void(remember(check_stream(stream)));
    auto operation = std::make_unique<Operation>();
    operation->devices = reach(stream->device);
    operation->work = [work = std::move(work)] {
        work();
        return std::string();
    };
    push(stream, std::move(operation));
}

void gradus::emulation::check_argument(const void* pointer, const char* kernel, int number) {
    if (!pointer) return;
    const Lock lock;
    const int owner = owner_of(pointer);
    if (owner == pageable)
        fail_card(
            current, cudaErrorIllegalAddress,
            "kernel " + std::string(kernel) + ": argument " + std::to_string(number) + " points to the host's memory");
    else if (owner >= 0 && !(reach(current) >> owner & 1))
        fail_card(current, cudaErrorIllegalAddress,
                  "kernel " + std::string(kernel) + ": argument " + std::to_string(number) +
                      " points to memory of cuda:" + std::to_string(owner) +
                      ", to which cuda:" + std::to_string(current) + " has no peer access");
}

std::int64_t gradus::emulation::host_waits() {
    const Lock lock;
    return machine().waits;
}

bool gradus::emulation::has_context(int device) {
    const Lock lock;
    return machine().cards[device].context;
}

std::string gradus::emulation::last_report() {
    const Lock lock;
    return machine().report;
}
void gradus::emulation::reset_errors() {
    const Lock lock;
    for (Card& card : machine().cards) card.error = cudaSuccess;
    machine().report.clear();
    last_error = cudaSuccess;
}

// ---- devices ----

cudaError_t cudaGetLastError() {
    const Lock lock;
    const cudaError_t error = std::exchange(last_error, cudaSuccess);
    return fault() != cudaSuccess ? fault() : error;
}
cudaError_t cudaPeekAtLastError() {
    const Lock lock;
    return fault() != cudaSuccess ? fault() : last_error;
}
cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_total();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= device_total()) return remember(cudaErrorInvalidDevice);
    const Lock lock;
    current = device;
    machine().cards[device].context = true;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device < 0 || device >= device_total()) return remember(cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated card %d", device);
    for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = char(i == 15 ? device : 0x67);
    properties->totalGlobalMem = memory_total();
    properties->multiProcessorCount = 4, properties->major = 9, properties->minor = 0;
    properties->pciBusID = device + 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : 227 * 1024;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    const Lock lock;
    ++machine().waits;
    for (std::size_t i = 0; i < machine().streams.size(); ++i)
        if (GradusStream* stream = machine().streams[i]; stream->device == current) {
            run_all(stream);
            GRADUS_TSAN(__tsan_acquire(&stream->done);)
        }
    close_devices();
    return remember(fault());
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    *can = device != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    const Lock lock;
    if (peer < 0 || peer >= device_total() || peer == current) return remember(cudaErrorInvalidDevice);
    std::uint32_t& peers = machine().cards[current].peers;
    if (peers >> peer & 1) return remember(cudaErrorPeerAccessAlreadyEnabled);
    peers |= 1u << peer;
    return cudaSuccess;
}

// ---- memory ----

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    const Lock lock;
    if (fault() != cudaSuccess) return fault();
    machine().cards[current].context = true;
    *pointer = device_allocate(current, bytes);
    return remember(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* pointer) {
    const Lock lock;
    if (!pointer) return cudaSuccess;
    ++machine().waits;
    const int owner = owner_of(pointer);
    if (owner < 0) return remember(cudaErrorInvalidValue);
    for (GradusStream* stream : machine().streams)
        if (stream->device == owner) run_all(stream);  // CUDA waits for the device too
    close_devices();
    return remember(device_free(owner, pointer) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    const Lock lock;
    machine().cards[current].context = true;
    *pointer = host_allocate(bytes);
    return remember(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* pointer) {
    const Lock lock;
    ++machine().waits;
    for (GradusStream* stream : machine().streams) run_all(stream);
    close_devices();
    return remember(host_free(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const Lock lock;
    *free = memory_free(current), *total = memory_total();
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    const bool to_card = owner_of(target) >= 0, from_card = owner_of(source) >= 0;
    const bool expected = kind == cudaMemcpyDefault ||
                          (to_card == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                           from_card == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
    if (!expected) return remember(cudaErrorInvalidValue);
    return copy(target, source, bytes, reach(stream->device), stream);
}
cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device,
                                std::size_t bytes, cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    if (owner_of(target) != target_device || owner_of(source) != source_device) return remember(cudaErrorInvalidValue);
    return copy(target, source, bytes, 1u << target_device | 1u << source_device, stream);
}
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    auto operation = std::make_unique<Operation>();
    operation->devices = reach(stream->device);
    operation->work = [=] {
        GRADUS_TSAN(__tsan_write_range(target, bytes);)
        std::memset(target, value, bytes);
        return std::string();
    };
    push(stream, std::move(operation));
    return cudaSuccess;
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    const Lock lock;
    machine().cards[current].context = true;
    *stream = new GradusStream{current, {}, nullptr, 0};
    GRADUS_TSAN((*stream)->tsan = __tsan_create_fiber(0); __tsan_set_fiber_name((*stream)->tsan, "stream");)
    machine().streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); !stream) return remember(error);
    run_all(stream);
    close_devices();
    std::erase(machine().streams, stream);
    GRADUS_TSAN(__tsan_destroy_fiber(stream->tsan);)
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const Lock lock;
    ++machine().waits;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    run_all(stream);
    close_devices();
    GRADUS_TSAN(__tsan_acquire(&stream->done);)
    return remember(machine().cards[stream->device].error);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    if (!stream->queue.empty()) return cudaErrorNotReady;
    GRADUS_TSAN(__tsan_acquire(&stream->done);)
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned, const char* file, int line) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    if (skipped("event-wait", file, line) || event->moment->recorded == 0) return cudaSuccess;
    auto operation = std::make_unique<Operation>();
    operation->wait = event->moment, operation->version = event->moment->recorded;
    push(stream, std::move(operation));
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    const Lock lock;
    machine().cards[current].context = true;
    *event = new GradusEvent{current};
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const Lock lock;
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const Lock lock;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) return remember(error);
    if (event->device != stream->device) return remember(cudaErrorInvalidResourceHandle);
    auto operation = std::make_unique<Operation>();
    event->moment->stream = stream;
    operation->record = event->moment, operation->version = ++event->moment->recorded;
    push(stream, std::move(operation));
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    const Lock lock;
    if (event->moment->completed < event->moment->recorded) return cudaErrorNotReady;
    GRADUS_TSAN(__tsan_acquire(&event->moment->token);)
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const Lock lock;
    ++machine().waits;
    const Moment& moment = *event->moment;
    if (moment.stream) run_until(moment.stream, moment, moment.recorded);
    close_devices();
    GRADUS_TSAN(__tsan_acquire(&event->moment->token);)
    return remember(fault());
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const Lock lock;
    *milliseconds = std::chrono::duration<float, std::milli>(end->moment->time - start->moment->time).count();
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    const Lock lock;
    const auto& allowed = machine().cards[current].dynamic_shared;
    const auto found = allowed.find(function);
    // What the kernel declares shows when it runs, and is checked then.
    *attributes = {0, found == allowed.end() ? 48 << 10 : found->second};
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
    if (value > 227 * 1024) return remember(cudaErrorInvalidValue);
    const Lock lock;
    machine().cards[current].dynamic_shared[function] = value;
    return cudaSuccess;
}

// ---- names ----

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define GRADUS_NAME(name) \
    case name:            \
        return #name;
        GRADUS_NAME(cudaSuccess)
        GRADUS_NAME(cudaErrorInvalidValue)
        GRADUS_NAME(cudaErrorMemoryAllocation)
        GRADUS_NAME(cudaErrorInvalidConfiguration)
        GRADUS_NAME(cudaErrorInsufficientDriver)
        GRADUS_NAME(cudaErrorNoDevice)
        GRADUS_NAME(cudaErrorInvalidDevice)
        GRADUS_NAME(cudaErrorECCUncorrectable)
        GRADUS_NAME(cudaErrorInvalidResourceHandle)
        GRADUS_NAME(cudaErrorNotReady)
        GRADUS_NAME(cudaErrorIllegalAddress)
        GRADUS_NAME(cudaErrorLaunchTimeout)
        GRADUS_NAME(cudaErrorPeerAccessAlreadyEnabled)
        GRADUS_NAME(cudaErrorAssert)
        GRADUS_NAME(cudaErrorHardwareStackError)
        GRADUS_NAME(cudaErrorIllegalInstruction)
        GRADUS_NAME(cudaErrorMisalignedAddress)
        GRADUS_NAME(cudaErrorInvalidAddressSpace)
        GRADUS_NAME(cudaErrorInvalidPc)
        GRADUS_NAME(cudaErrorMpsClientTerminated)
        GRADUS_NAME(cudaErrorLaunchFailure)
#undef GRADUS_NAME
    }
    return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure";
        default:
            return "invalid argument or state";
    }
}
