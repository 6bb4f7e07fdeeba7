// Runs one launch: its blocks over host threads, a block's threads as fibers that switch at barriers and warp
// operations.
//
// Note [What ThreadSanitizer is told]
// A fiber is a thread to ThreadSanitizer, and a switch orders nothing. Order comes only from what CUDA promises: all
// threads acquire the launch's start and release its end; a barrier releases before and acquires after, with a token
// per epoch, since one token for all would order more than the barrier does; __syncwarp has a token per instance;
// shuffles and votes have none. Two sets of fibers take turns, so that blocks stay unordered even on one host thread;
// shared memory is not handed out again before 16 MiB have passed. The emulator itself is compiled without
// -fsanitize=thread and fills memory with volatile stores, since memset is intercepted everywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/emulation/device.h"
#include "gradus/core/emulation/fiber.h"

namespace gradus::emulation {

inline constexpr std::size_t stack_bytes = 64 * 1024, guard_bytes = 4096;

/// An asynchronous copy of a thread that has not arrived yet.
struct PendingCopy {
    void* target;
    const void* source;
    int bytes, filled;  // bytes of the source, the rest of 16 is zero
};
struct CopyGroup {
    PendingCopy copies[64];
    int count = 0;
};

struct Fiber : Thread {
    enum class State : std::uint8_t { ready, at_barrier, in_warp_operation, done } state = State::ready;
    Context context;
    char* stack = nullptr;
    bool fresh = true;  ///< the context must be made before the first switch to it
    Place place{};
    const char* what = nullptr;
    unsigned mask = 0;
    void* tsan = nullptr;
    void* fake_stack = nullptr;  ///< ASan's
    CopyGroup groups[8];
    int group_count = 0;
    bool group_open = false;
};

/// What a launch is while it runs.
struct Running {
    const Launch& launch;
    std::atomic<std::uint64_t> next{0};
    std::uint64_t blocks = 0;
    std::atomic<bool> failed{false};
    char start = 0, end = 0;  // ThreadSanitizer's tokens
};

/// The fiber this host thread is in; null outside a kernel.
Fiber* current_fiber();
/// Notes what went wrong in the running block; its fibers are left where they are at the next switch.
void fail_block(const std::string& report);
/// Leaves the running block, which has failed.
[[noreturn]] void leave_block();
/// "kernel k, block (1, 0, 0), thread 5", for reports.
std::string whereabouts();

/// Runs all blocks; a report of what went wrong, or nothing.
std::string run(const Launch& launch);
std::uint32_t random_below(std::uint32_t n);                       ///< the running worker's random numbers
void copy_bytes(void* target, const void* source, std::size_t n);  ///< seen by ThreadSanitizer as the running fiber's

}  // namespace gradus::emulation
