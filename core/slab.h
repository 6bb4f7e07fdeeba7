// Small fixed-size blocks for handles and nodes: taken from and given back to a list of the running thread.
#pragma once

#include <cstddef>

namespace gradus {

/// A block of at least `bytes` (<= 512), aligned to 16. May be freed on another thread.
void* slab_allocate(std::size_t bytes);
void slab_free(void* block, std::size_t bytes);
/// Does a block of `bytes` begin here, in use or free, so that its memory can be read? For Tensor::find.
bool slab_holds(const void* p, std::size_t bytes);

/// Base for classes whose objects come from the slab.
template <class T>
struct SlabAllocated {
    static void* operator new(std::size_t) {
        static_assert(sizeof(T) <= 512);
        return slab_allocate(sizeof(T));
    }
    static void operator delete(void* block) { slab_free(block, sizeof(T)); }
};

}  // namespace gradus
