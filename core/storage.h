// The elements of one or several tensors on one device, and the caching pool they come from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/device.h"
#include "gradus/core/ref.h"
#include "gradus/core/slab.h"

namespace gradus {

/// A block of memory with a version. Every write in place bumps the version, so that backward can refuse a saved tensor
/// that moved on.
class Storage : public RefCounted<Storage>, public SlabAllocated<Storage> {
  public:
    /// Uninitialised memory from the device's pool, aligned to 64 bytes. Throws Error when memory is out. On a card it
    /// belongs to the current stream: work given to that stream may use it at once, also after an earlier owner on it.
    static Ref<Storage> allocate(std::size_t bytes, Device device);
    /// Page-locked memory of the CPU, which cards copy from and to while the host goes on; plain memory where there is
    /// no card.
    static Ref<Storage> allocate_pinned(std::size_t bytes);
    ~Storage();

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Device device() const { return device_; }
    std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
    void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

    bool pinned() const { return pinned_; }
    /// The memory is not given to anybody else before the work that `stream` (of any card) holds now and until the
    /// storage ends is done.
    void use_on(void* stream);
    void* home() const { return home_; }  ///< the stream it belongs to; null on the CPU

  private:
    Storage(void* data, std::size_t bytes, Device device, void* home, bool pinned)
        : data_(data), bytes_(bytes), device_(device), pinned_(pinned), home_(home) {}
    void* data_;
    std::size_t bytes_;
    Device device_;
    bool pinned_;
    std::atomic<std::uint32_t> version_ = 0;
    void* home_;
    std::atomic<void*> guest_ = nullptr;  ///< the stream beside the home one that uses it
    std::vector<void*> guests_;           ///< further ones
};

/// What a device's pool did so far. Bytes count whole blocks, which are larger than what was asked for (see pool.h).
struct PoolStatistics {
    std::int64_t in_use = 0;              ///< bytes handed out now
    std::int64_t peak = 0;                ///< the most ever handed out at once
    std::int64_t cached = 0;              ///< bytes kept for the next request
    std::int64_t allocations = 0;         ///< requests served
    std::int64_t system_allocations = 0;  ///< requests that went to the operating system: 0 in a steady training step
    std::int64_t largest_cached = 0;      ///< bytes of the largest block kept
};
PoolStatistics pool_statistics(Device device = {});

/// Gives cached blocks back to the system; what is in use stays.
void release_cached(Device device = {});

/// The most bytes the pool may hold (in use and cached); 0 means no limit. GRADUS_MEMORY_LIMIT (bytes) sets it at the
/// start.
void limit_memory(std::int64_t bytes, Device device = {});

}  // namespace gradus
