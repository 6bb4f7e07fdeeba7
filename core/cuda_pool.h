// The caching pools of CUDA: a card's memory, and page-locked memory of the host.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "gradus/core/cuda.h"
#include "gradus/core/pool.h"

namespace gradus {

/// Note [Streams and reuse]
/// A block belongs to the stream it was allocated for. When its storage ends, work that uses it may still be waiting in
/// that stream; whatever the stream is given later comes after it, so the block goes to the next tensor of the same
/// stream at once and nobody waits. Work on other streams (guests) is waited for by the home stream, through an event
/// recorded when the storage ends. Where a stream has no block of a size and another has one, the taker waits for an
/// event of the giver. The host never waits, but before memory is given back to the driver.
///
/// With GRADUS_POOL=off every block comes from cudaMalloc and goes back at once: slow, but compute-sanitizer sees an
/// access beyond a tensor's end and a read of what nobody wrote, which a reused block hides.
class CudaPool final : public Pool {
  public:
    explicit CudaPool(Device device);
    void* allocate(std::size_t bytes, void* stream) override;
    void free(void* block, std::size_t bytes, void* stream, std::span<void* const> guests) override;
    void release_cached() override;
    void limit(std::int64_t bytes) override;
    PoolStatistics statistics() const override;

  private:
    using Lists = std::vector<std::vector<void*>>;  // a list per class
    struct Slab {
        std::size_t used = 0;     ///< bytes cut off so far
        std::int64_t in_use = 0;  ///< bytes of its blocks that are handed out
    };
    void* take(std::size_t size, void* stream);
    void* take_cached(std::size_t size, void* stream);
    void* map(std::size_t size);
    void* cut(std::size_t size);
    void unmap_cached();
    Slab& slab_of(void* block);
    std::int64_t largest_cached() const;

    mutable std::mutex mutex_;
    Device device_;
    const bool caching_;
    std::map<void*, Lists> cached_;  // by stream
    std::map<char*, Slab> slabs_;    // by address
    char* open_slab_ = nullptr;
    std::int64_t limit_, mapped_ = 0;
    PoolStatistics statistics_;
};

/// Page-locked host memory. A block is used again when the copies of all its streams are done.
class PinnedPool {
  public:
    static PinnedPool& instance();
    void* allocate(std::size_t bytes, void* stream);
    void free(void* block, std::size_t bytes, void* stream, std::span<void* const> guests);

  private:
    struct Busy {
        void* block;
        std::size_t size;
        std::vector<cudaEvent_t> events;
    };
    std::mutex mutex_;
    std::map<std::size_t, std::vector<void*>> cached_;  // by size
    std::vector<Busy> busy_;
};

}  // namespace gradus
