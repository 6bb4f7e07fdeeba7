// Copies from global to shared memory that arrive later: what cp.async does (see kernels/ptx.cuh).
#pragma once

namespace gradus::emulation {

/// Copies `bytes` (4, 8 or 16) to shared memory, of which the last `bytes - filled` become zero instead, at some time
/// before the thread's wait for its group returns. Both addresses are multiples of `bytes`.
void copy_async(void* shared, const void* global, int bytes, int filled);
inline void copy_async(void* shared, const void* global, int bytes) { copy_async(shared, global, bytes, bytes); }
/// Ends the thread's group of copies.
void copy_async_commit();
/// Returns when at most `pending` groups of the thread are still under way.
void copy_async_wait(int pending, const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace gradus::emulation
