// The caching pool of one CPU device: blocks are taken from the system once and kept.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "gradus/core/storage.h"

namespace gradus {

/// Sizes are rounded to classes, eight to a power of two. Blocks of 1 MiB and more are mapped on their own, from 2 MiB
/// on as whole huge pages; smaller ones are cut from 2 MiB slabs, which go back to the system as a whole.
class Pool {
  public:
    explicit Pool(Device device);
    void* allocate(std::size_t bytes);
    void free(void* block, std::size_t bytes);
    void release_cached();
    void limit(std::int64_t bytes);
    PoolStatistics statistics() const;

    static Pool& of(Device device);  ///< lives until the process ends
    static std::size_t class_size(std::size_t bytes);

  private:
    void* take(std::size_t size);
    void* map(std::size_t size);
    void* cut(std::size_t size);
    void unmap_cached();
    bool has_room(std::size_t size) const;
    std::int64_t largest_cached() const;

    static constexpr int classes = 512;
    mutable std::mutex mutex_;
    Device device_;
    std::vector<void*> cached_[classes];
    std::int64_t limit_ = 0, mapped_ = 0;  ///< mapped_: bytes taken from the system
    std::vector<char*> slabs_;
    char* slab_ = nullptr;
    std::size_t slab_left_ = 0;
    PoolStatistics statistics_;
};

}  // namespace gradus
