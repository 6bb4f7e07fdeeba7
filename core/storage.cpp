#include "gradus/core/storage.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "gradus/core/error.h"
#include "gradus/core/pool.h"
#include "gradus/core/stream.h"
#include "gradus/core/thread_state.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cuda_pool.h"
#endif

namespace gradus {
namespace {

Pool* make_pool(Device device) {
#ifdef GRADUS_HAS_CUDA
    if (device.kind == Device::cuda) return new CudaPool(device);
#endif
    return new CpuPool(device);
}

void* home_stream(Device device) { return device.kind == Device::cpu ? nullptr : Stream::current(device).handle(); }

std::mutex& guests_mutex() {
    static std::mutex* all = new std::mutex;  // outlives every static tensor
    return *all;
}

}  // namespace

Pool& Pool::of(Device device) {
    // Never destroyed: static tensors may outlive everything else.
    static std::array<std::atomic<Pool*>, 64 + max_cards> pools{};
    static std::mutex making;
    std::atomic<Pool*>& slot = pools.at(std::size_t(device.index) + (device.kind == Device::cuda ? 64 : 0));
    if (Pool* pool = slot.load(std::memory_order_acquire)) return *pool;
    const std::lock_guard lock(making);
    if (!slot.load(std::memory_order_relaxed)) slot.store(make_pool(device), std::memory_order_release);
    return *slot.load(std::memory_order_relaxed);
}

PoolStatistics pool_statistics(Device device) { return check_device(device), Pool::of(device).statistics(); }
void release_cached(Device device) { return check_device(device), Pool::of(device).release_cached(); }
void limit_memory(std::int64_t bytes, Device device) { return check_device(device), Pool::of(device).limit(bytes); }

Ref<Storage> Storage::allocate(std::size_t bytes, Device device) {
    void* const home = home_stream(device);
    return Ref<Storage>(new Storage(Pool::of(device).allocate(bytes, home), bytes, device, home, false));
}

Ref<Storage> Storage::allocate_pinned(std::size_t bytes) {
#ifdef GRADUS_HAS_CUDA
    if (device_count(Device::cuda) > 0)
        return Ref<Storage>(
            new Storage(PinnedPool::instance().allocate(bytes, nullptr), bytes, Device{}, nullptr, true));
#endif
    return allocate(bytes, Device{});
}

void Storage::use_on(void* stream) {
    if (stream == home_) return;
    void* first = nullptr;
    if (guest_.compare_exchange_strong(first, stream, std::memory_order_relaxed) || first == stream) return;
    const std::lock_guard lock(guests_mutex());
    if (std::find(guests_.begin(), guests_.end(), stream) != guests_.end()) return;
    guests_.reserve(guests_.size() + 2);  // the destructor adds the first guest
    guests_.push_back(stream);
}

Storage::~Storage() {
    void* const guest = guest_.load(std::memory_order_relaxed);
    if (!guests_.empty()) guests_.push_back(guest);
    const std::span<void* const> all = guests_.empty() ? std::span(&guest, guest ? 1 : 0) : std::span(guests_);
#ifdef GRADUS_HAS_CUDA
    if (pinned_) {
        PinnedPool::instance().free(data_, bytes_, nullptr, all);
        return;
    }
#endif
    Pool::of(device_).free(data_, bytes_, home_, all);
}

}  // namespace gradus
