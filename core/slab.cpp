#include "gradus/core/slab.h"

#include <mutex>
#include <new>
#include <set>
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" int __sanitizer_get_ownership(const volatile void*);  // g++ ships no header that declares these
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void*);
#endif

namespace gradus {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

constexpr std::size_t step = 32, classes = 16;  // up to 512 bytes
struct Block {
    Block* next;
};

// Blocks of threads that ended, taken over by those that still run.
struct Orphans {
    std::mutex mutex;
    Block* lists[classes] = {};
    std::set<const char*> chunks[classes];  ///< of all threads; they are never given back
};
Orphans& orphans() {
    static Orphans* all = new Orphans;  // outlives every thread and every static tensor
    return *all;
}

struct Lists {
    Block* heads[classes] = {};
    ~Lists() {
        Orphans& all = orphans();
        const std::lock_guard lock(all.mutex);
        for (std::size_t c = 0; c < classes; ++c)
            while (Block* block = heads[c]) {
                heads[c] = block->next;
                block->next = all.lists[c];
                all.lists[c] = block;
            }
        gone = true;
    }
    static thread_local bool gone;
};
thread_local bool Lists::gone = false;
thread_local Lists lists;

Block* refill(std::size_t c) {
    {
        Orphans& all = orphans();
        const std::lock_guard lock(all.mutex);
        if (Block* block = all.lists[c]) {
            all.lists[c] = nullptr;
            return block;
        }
    }
    const std::size_t size = (c + 1) * step, count = 16384 / size;
    char* memory = static_cast<char*>(::operator new(size* count));
    {
        const std::lock_guard lock(orphans().mutex);
        orphans().chunks[c].insert(memory);
    }
    for (std::size_t i = 0; i < count; ++i)
        reinterpret_cast<Block*>(memory + i * size)->next =
            i + 1 < count ? reinterpret_cast<Block*>(memory + (i + 1) * size) : nullptr;
    return reinterpret_cast<Block*>(memory);
}

}  // namespace
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Under a sanitizer every block comes from the system, so that a use after free is seen.
void* slab_allocate(std::size_t bytes) { return ::operator new(bytes); }
void slab_free(void* memory, std::size_t) { ::operator delete(memory); }
bool slab_holds(const void* p, std::size_t bytes) {
    return __sanitizer_get_ownership(p) && __sanitizer_get_allocated_size(p) == bytes;
}
#else

void* slab_allocate(std::size_t bytes) {
    const std::size_t c = (bytes - 1) / step;
    if (Lists::gone) return refill(c);  // a thread on its way out: rare, the rest of the refill is left
    Block*& head = lists.heads[c];
    if (!head) head = refill(c);
    Block* block = head;
    head = block->next;
    return block;
}

bool slab_holds(const void* p, std::size_t bytes) {
    const std::size_t c = (bytes - 1) / step, size = (c + 1) * step;
    const char* address = static_cast<const char*>(p);
    const std::lock_guard lock(orphans().mutex);
    const auto after = orphans().chunks[c].upper_bound(address);
    if (after == orphans().chunks[c].begin()) return false;
    const auto at = std::size_t(address - *std::prev(after));
    return at % size == 0 && at / size < 16384 / size;
}

void slab_free(void* memory, std::size_t bytes) {
    const std::size_t c = (bytes - 1) / step;
    Block* block = static_cast<Block*>(memory);
    if (Lists::gone) {
        Orphans& all = orphans();
        const std::lock_guard lock(all.mutex);
        block->next = all.lists[c];
        all.lists[c] = block;
        return;
    }
    block->next = lists.heads[c];
    lists.heads[c] = block;
}

#endif

}  // namespace gradus
