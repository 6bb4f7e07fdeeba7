#include "gradus/core/pool.h"

#include <sys/mman.h>

#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "gradus/core/error.h"

namespace gradus {
namespace {

constexpr std::size_t huge_page = Pool::slab_size;

std::size_t round_up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

/// The first bytes of a slab, which is aligned to its size: any block finds its own.
struct alignas(64) SlabHeader {
    std::int64_t in_use = 0;  ///< bytes of its blocks that are handed out
};
SlabHeader& slab_of(void* block) {
    return *reinterpret_cast<SlabHeader*>(reinterpret_cast<std::size_t>(block) / huge_page * huge_page);
}

}  // namespace

int Pool::class_index(std::size_t size) {
    const int log = std::bit_width(size) - 1;
    return log * 8 + int((size >> (log - 3)) & 7);
}

std::size_t Pool::size_of_class(int index) { return (std::size_t(8 + index % 8) << (index / 8)) >> 3; }

std::int64_t Pool::limit_from_environment() {
    const char* text = std::getenv("GRADUS_MEMORY_LIMIT");
    if (!text) return 0;
    const std::string_view view(text);
    std::int64_t bytes = 0;
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), bytes);
    check(error == std::errc() && end == view.data() + view.size() && bytes >= 0,
          "GRADUS_MEMORY_LIMIT: expected a number of bytes: got \"", view, "\"");
    return bytes;
}

CpuPool::CpuPool(Device device) : device_(device), limit_(limit_from_environment()) {}

std::size_t Pool::class_size(std::size_t bytes) {
    std::size_t size = bytes < 64 ? 64 : bytes;
    const std::size_t step = std::bit_floor(size) / 8;
    size = round_up(size, step < 64 ? 64 : step);
    return size >= huge_page ? round_up(size, huge_page) : size;
}

bool CpuPool::has_room(std::size_t size) const { return limit_ == 0 || mapped_ + std::int64_t(size) <= limit_; }

void* CpuPool::map(std::size_t size) {
    if (!has_room(size)) return nullptr;
    const bool huge = size >= huge_page;
    const std::size_t extra = huge ? huge_page : 0;
    void* memory = mmap(nullptr, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mapped_ += std::int64_t(size);
    ++statistics_.system_allocations;
    if (!huge) return memory;
    char *start = static_cast<char*>(memory),
         *aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<std::size_t>(start), huge_page));
    if (aligned != start) munmap(start, std::size_t(aligned - start));
    if (const std::size_t tail = extra - std::size_t(aligned - start)) munmap(aligned + size, tail);
    madvise(aligned, size, MADV_HUGEPAGE);
    return aligned;
}

void* CpuPool::cut(std::size_t size) {
    if (slab_left_ < size) {
        char* slab = static_cast<char*>(map(huge_page));
        if (!slab) return nullptr;
        new (slab) SlabHeader;
        slabs_.push_back(slab);
        slab_ = slab + sizeof(SlabHeader), slab_left_ = huge_page - sizeof(SlabHeader);
    }
    char* block = slab_;
    slab_ += size, slab_left_ -= size;
    slab_of(block).in_use += std::int64_t(size);
    return block;
}

void* CpuPool::take(std::size_t size) {
    std::vector<void*>& list = cached_[class_index(size)];
    if (!list.empty()) {
        void* block = list.back();
        list.pop_back();
        statistics_.cached -= std::int64_t(size);
        if (size < own_mapping) slab_of(block).in_use += std::int64_t(size);
        return block;
    }
    return size < own_mapping ? cut(size) : map(size);
}

void CpuPool::unmap_cached() {
    for (int c = 0; c < classes; ++c) {
        const std::size_t size = size_of_class(c);
        if (size < own_mapping) {
            statistics_.cached -=
                std::int64_t(size * std::erase_if(cached_[c], [](void* block) { return slab_of(block).in_use == 0; }));
            continue;
        }
        for (void* block : cached_[c]) {
            munmap(block, size);
            statistics_.cached -= std::int64_t(size), mapped_ -= std::int64_t(size);
        }
        cached_[c].clear();
    }
    std::erase_if(slabs_, [this](char* slab) {
        if (slab_of(slab).in_use != 0) return false;
        if (slab_ && &slab_of(slab_ - 1) == &slab_of(slab)) slab_ = nullptr, slab_left_ = 0;
        munmap(slab, huge_page);
        mapped_ -= std::int64_t(huge_page);
        return true;
    });
}

void* CpuPool::allocate(std::size_t bytes, void*) {
    check(bytes <= std::size_t(1) << 60, "out of memory on ", device_, ": requested ", bytes, " bytes");
    const std::size_t size = class_size(bytes);
    const std::lock_guard lock(mutex_);
    void* block = take(size);
    if (!block) {
        unmap_cached();
        block = take(size);
    }
    if (!block)
        fail("out of memory on ", device_, ": requested ", bytes, " bytes, in use ", statistics_.in_use, ", cached ",
             statistics_.cached, ", largest cached block ", largest_cached(),
             limit_ ? text(", limit ", limit_) : std::string(), ": use a smaller batch or free tensors");
    ++statistics_.allocations;
    statistics_.in_use += std::int64_t(size);
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
#ifndef NDEBUG
    std::memset(block, 0xff, size);  // an element that was never written reads as NaN
#endif
    return block;
}

void CpuPool::free(void* block, std::size_t bytes, void*, std::span<void* const>) {
    const std::size_t size = class_size(bytes);
    const std::lock_guard lock(mutex_);
    cached_[class_index(size)].push_back(block);
    if (size < own_mapping) slab_of(block).in_use -= std::int64_t(size);
    statistics_.cached += std::int64_t(size);
    statistics_.in_use -= std::int64_t(size);
}

void CpuPool::release_cached() {
    const std::lock_guard lock(mutex_);
    unmap_cached();
}

void CpuPool::limit(std::int64_t bytes) {
    check(bytes >= 0, "limit_memory: expected 0 or a number of bytes: got ", bytes);
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
}

std::int64_t CpuPool::largest_cached() const {
    for (int c = classes - 1; c >= 0; --c)
        if (!cached_[c].empty()) return std::int64_t(size_of_class(c));
    return 0;
}

PoolStatistics CpuPool::statistics() const {
    const std::lock_guard lock(mutex_);
    PoolStatistics now = statistics_;
    now.largest_cached = largest_cached();
    return now;
}

}  // namespace gradus
