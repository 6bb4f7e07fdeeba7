// The caching pool of one device: blocks are taken from the system once and kept.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "gradus/core/storage.h"

namespace gradus {

/// What every device's pool can do; a stream is null on the CPU.
class Pool {
  public:
    virtual ~Pool() = default;
    /// Memory that work on `stream` may use at once.
    virtual void* allocate(std::size_t bytes, void* stream) = 0;
    /// Takes memory back that belongs to `stream`, and that `guests` use besides.
    virtual void free(void* block, std::size_t bytes, void* stream, std::span<void* const> guests) = 0;
    virtual void release_cached() = 0;
    virtual void limit(std::int64_t bytes) = 0;
    virtual PoolStatistics statistics() const = 0;

    static Pool& of(Device device);  ///< lives until the process ends
    /// Sizes are rounded to classes, eight to a power of two, from 2 MiB on to whole huge pages.
    static std::size_t class_size(std::size_t bytes);
    static int class_index(std::size_t size);
    static std::size_t size_of_class(int index);
    static std::int64_t limit_from_environment();  ///< GRADUS_MEMORY_LIMIT, 0 without it
    static constexpr int classes = 512;
    static constexpr std::size_t slab_size = std::size_t(2) << 20;    ///< small blocks are cut from slabs of this size
    static constexpr std::size_t own_mapping = std::size_t(1) << 20;  ///< from this size on a block is taken on its own
};

/// Blocks of 1 MiB and more are mapped on their own, from 2 MiB on as whole huge pages; smaller ones are cut from
/// slabs, which go back to the system as a whole.
class CpuPool final : public Pool {
  public:
    explicit CpuPool(Device device);
    void* allocate(std::size_t bytes, void* stream) override;
    void free(void* block, std::size_t bytes, void* stream, std::span<void* const> guests) override;
    void release_cached() override;
    void limit(std::int64_t bytes) override;
    PoolStatistics statistics() const override;

  private:
    void* take(std::size_t size);
    void* map(std::size_t size);
    void* cut(std::size_t size);
    void unmap_cached();
    bool has_room(std::size_t size) const;
    std::int64_t largest_cached() const;

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
