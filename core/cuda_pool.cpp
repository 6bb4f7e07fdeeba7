#include "gradus/core/cuda_pool.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "gradus/core/error.h"

namespace gradus {
namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

/// An event after all that a stream holds now; null where its card is lost, which is reported where work is given to
/// it, not here.
cudaEvent_t event_after(void* stream) noexcept {
    cudaEvent_t event = nullptr;
    try {
        const DeviceGuard guard(device_of_stream(stream));  // an event belongs to its stream's card
        cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
        cuda_check(cudaEventRecord(event, as_stream(stream)), "cudaEventRecord");
        return event;
    } catch (const std::exception&) {
        if (event) cuda_quiet(cudaEventDestroy(event));
        return nullptr;
    }
}

/// `later` goes on when all that `earlier` holds now is done.
void order(void* earlier, void* later) noexcept {
    cudaEvent_t event = event_after(earlier);
    if (!event) return;
    cuda_quiet(cudaStreamWaitEvent(as_stream(later), event, 0));
    cuda_quiet(cudaEventDestroy(event));  // CUDA keeps it until the wait is over
}

bool caching_from_environment() {
    const char* text = std::getenv("GRADUS_POOL");
    const std::string_view value = text ? text : "";
    check(value.empty() || value == "on" || value == "off", "GRADUS_POOL: expected on or off: got \"", value, "\"");
    return value != "off";
}

/// The driver gives memory in pages of 2 MiB.
std::int64_t taken_by(std::size_t size) {
    return std::int64_t((size + Pool::slab_size - 1) / Pool::slab_size * Pool::slab_size);
}

/// The card whose context page-locked memory is made in: one that is in use already.
Device card_in_use() {
    for (int i = 0; i < cuda_device_count(); ++i)
        if (has_context(i)) return {Device::cuda, i};
    return {Device::cuda, 0};
}

}  // namespace

CudaPool::CudaPool(Device device)
    : device_(device), caching_(caching_from_environment()), limit_(limit_from_environment()) {}

CudaPool::Slab& CudaPool::slab_of(void* block) {
    return std::prev(slabs_.upper_bound(static_cast<char*>(block)))->second;
}

void* CudaPool::map(std::size_t size) {
    if (limit_ != 0 && mapped_ + taken_by(size) > limit_) return nullptr;
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, size);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // out of memory is no lasting error
        return nullptr;
    }
    cuda_check(status, "cudaMalloc");
    mapped_ += taken_by(size);
    ++statistics_.system_allocations;
    return block;
}

void* CudaPool::cut(std::size_t size) {
    if (!open_slab_ || slabs_[open_slab_].used + size > slab_size) {
        char* slab = static_cast<char*>(map(slab_size));
        if (!slab) return nullptr;
        open_slab_ = slab;
        slabs_[slab] = {};
    }
    Slab& slab = slabs_[open_slab_];
    char* block = open_slab_ + slab.used;
    slab.used += size;
    slab.in_use += std::int64_t(size);
    return block;
}

void* CudaPool::take_cached(std::size_t size, void* stream) {
    const auto index = std::size_t(class_index(size));
    const auto pop = [&](Lists& lists) -> void* {
        if (lists.empty() || lists[index].empty()) return nullptr;
        void* block = lists[index].back();
        lists[index].pop_back();
        statistics_.cached -= std::int64_t(size);
        if (size < own_mapping) slab_of(block).in_use += std::int64_t(size);
        return block;
    };
    if (void* block = pop(cached_[stream])) return block;
    for (auto& [other, lists] : cached_) {
        if (void* block = pop(lists)) {
            order(other, stream);
            return block;
        }
    }
    return nullptr;
}

void* CudaPool::take(std::size_t size, void* stream) {
    if (void* block = take_cached(size, stream)) return block;
    return caching_ && size < own_mapping ? cut(size) : map(size);
}

void CudaPool::unmap_cached() {
    cuda_quiet(cudaDeviceSynchronize());  // work of ended storages may still run; an error surfaces at the next check
    for (auto& [stream, lists] : cached_) {
        for (int c = 0; c < int(lists.size()); ++c) {
            const std::size_t size = size_of_class(c);
            std::vector<void*>& list = lists[std::size_t(c)];
            if (size < own_mapping) {
                statistics_.cached -= std::int64_t(
                    size * std::erase_if(list, [this](void* block) { return slab_of(block).in_use == 0; }));
                continue;
            }
            for (void* block : list) {
                cuda_quiet(cudaFree(block));
                statistics_.cached -= std::int64_t(size), mapped_ -= taken_by(size);
            }
            list.clear();
        }
    }
    std::erase_if(slabs_, [this](const auto& entry) {
        if (entry.second.in_use != 0) return false;
        if (open_slab_ == entry.first) open_slab_ = nullptr;
        cuda_quiet(cudaFree(entry.first));
        mapped_ -= std::int64_t(slab_size);
        return true;
    });
}

void* CudaPool::allocate(std::size_t bytes, void* stream) {
    check(bytes <= std::size_t(1) << 60, "out of memory on ", device_, ": requested ", bytes, " bytes");
    const std::size_t size = std::max<std::size_t>(class_size(bytes), 256);
    const DeviceGuard guard(device_);
    const std::lock_guard lock(mutex_);
    void* block = take(size, stream);
    if (!block) {
        unmap_cached();
        block = take(size, stream);
    }
    if (!block)
        fail("out of memory on ", device_, ": requested ", bytes, " bytes, in use ", statistics_.in_use, ", cached ",
             statistics_.cached, ", largest cached block ", largest_cached(),
             limit_ ? text(", limit ", limit_) : std::string(), ": use a smaller batch or free tensors");
    ++statistics_.allocations;
    statistics_.in_use += std::int64_t(size);
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
#ifndef NDEBUG
    cuda_check(cudaMemsetAsync(block, 0xff, size, as_stream(stream)), "poisoning fresh memory");
#endif
    return block;
}

void CudaPool::free(void* block, std::size_t bytes, void* stream, std::span<void* const> guests) {
    const std::size_t size = std::max<std::size_t>(class_size(bytes), 256);
    const std::lock_guard lock(mutex_);
    statistics_.in_use -= std::int64_t(size);
    for (void* guest : guests) order(guest, stream);
    if (!caching_) {
        cuda_quiet(cudaStreamSynchronize(as_stream(stream)));  // an error surfaces at the next check
        cuda_quiet(cudaFree(block));
        mapped_ -= taken_by(size);
        return;
    }
    Lists& lists = cached_[stream];
    if (lists.empty()) lists.resize(classes);
    lists[std::size_t(class_index(size))].push_back(block);
    if (size < own_mapping) slab_of(block).in_use -= std::int64_t(size);
    statistics_.cached += std::int64_t(size);
}

void CudaPool::release_cached() {
    const DeviceGuard guard(device_);
    const std::lock_guard lock(mutex_);
    unmap_cached();
}

void CudaPool::limit(std::int64_t bytes) {
    check(bytes >= 0, "limit_memory: expected 0 or a number of bytes: got ", bytes);
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
}

std::int64_t CudaPool::largest_cached() const {
    int largest = -1;
    for (const auto& [stream, lists] : cached_)
        for (int c = int(lists.size()) - 1; c > largest; --c)
            if (!lists[std::size_t(c)].empty()) largest = c;
    return largest < 0 ? 0 : std::int64_t(size_of_class(largest));
}

PoolStatistics CudaPool::statistics() const {
    const std::lock_guard lock(mutex_);
    PoolStatistics now = statistics_;
    now.largest_cached = largest_cached();
    return now;
}

PinnedPool& PinnedPool::instance() {
    static PinnedPool* pool = new PinnedPool;  // outlives every static tensor
    return *pool;
}

void* PinnedPool::allocate(std::size_t bytes, void*) {
    const std::size_t size = Pool::class_size(bytes);
    const std::lock_guard lock(mutex_);
    std::erase_if(busy_, [&](const Busy& busy) {
        for (cudaEvent_t event : busy.events) {
            const cudaError_t status = cudaEventQuery(event);
            cuda_quiet(status);
            if (status == cudaErrorNotReady) return false;
        }
        for (cudaEvent_t event : busy.events) cuda_quiet(cudaEventDestroy(event));
        cached_[busy.size].push_back(busy.block);
        return true;
    });
    std::vector<void*>& list = cached_[size];
    if (!list.empty()) {
        void* block = list.back();
        list.pop_back();
        return block;
    }
    void* block = nullptr;
    const DeviceGuard guard(card_in_use());
    cuda_check(cudaMallocHost(&block, size), "cudaMallocHost");
    return block;
}

void PinnedPool::free(void* block, std::size_t bytes, void*, std::span<void* const> guests) {
    Busy busy{block, Pool::class_size(bytes), {}};
    for (void* guest : guests)
        if (cudaEvent_t event = event_after(guest)) busy.events.push_back(event);
    const std::lock_guard lock(mutex_);
    busy_.push_back(std::move(busy));
}

}  // namespace gradus
