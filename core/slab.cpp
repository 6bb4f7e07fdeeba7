#include "gradus/core/slab.h"

#include <mutex>
#include <new>
#include <set>
#include <vector>
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

constexpr std::size_t blocks_of(std::size_t c) { return 16384 / ((c + 1) * step); }  ///< in a chunk

struct List {
    Block* head = nullptr;
    std::size_t count = 0;
    void push(Block* block) { block->next = head, head = block, ++count; }
    Block* pop() {
        Block* block = head;
        head = block->next, --count;
        return block;
    }
};

// Blocks that threads had too many of or left behind, for those that need some.
struct Orphans {
    std::mutex mutex;
    std::vector<List> lists[classes];
    std::set<const char*> chunks[classes];  ///< of all threads; they are never given back
};
Orphans& orphans() {
    static Orphans* all = new Orphans;  // outlives every thread and every static tensor
    return *all;
}

void give_up(std::size_t c, const List& list) {
    const std::lock_guard lock(orphans().mutex);
    orphans().lists[c].push_back(list);
}

struct Lists {
    List lists[classes];
    ~Lists() {
        for (std::size_t c = 0; c < classes; ++c)
            if (lists[c].head) give_up(c, lists[c]);
        gone = true;
    }
    static thread_local bool gone;
};
thread_local bool Lists::gone = false;
thread_local Lists mine;

List refill(std::size_t c) {
    Orphans& all = orphans();
    const std::lock_guard lock(all.mutex);
    if (!all.lists[c].empty()) {
        const List list = all.lists[c].back();
        all.lists[c].pop_back();
        return list;
    }
    const std::size_t size = (c + 1) * step;
    char* memory = static_cast<char*>(::operator new(size* blocks_of(c)));
    all.chunks[c].insert(memory);
    List list;
    for (std::size_t i = blocks_of(c); i-- > 0;) list.push(reinterpret_cast<Block*>(memory + i * size));
    return list;
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
    if (Lists::gone) {  // a thread on its way out
        List list = refill(c);
        Block* block = list.pop();
        if (list.head) give_up(c, list);
        return block;
    }
    List& list = mine.lists[c];
    if (!list.head) list = refill(c);
    return list.pop();
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
    List one;
    if (Lists::gone) {
        one.push(block);
        return give_up(c, one);
    }
    List& list = mine.lists[c];
    list.push(block);
    // A thread that only frees what another makes would hoard blocks.
    if (list.count < 4 * blocks_of(c)) return;
    for (std::size_t i = 0; i < 2 * blocks_of(c); ++i) one.push(list.pop());
    give_up(c, one);
}

#endif

}  // namespace gradus
