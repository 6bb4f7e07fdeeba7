#include "gradus/core/emulation/scheduler.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/core/emulation/memory.h"
#include "gradus/core/emulation/options.h"
#include "gradus/core/emulation/sanitizer.h"

namespace gradus::emulation {

thread_local Thread* current_thread = nullptr;
thread_local Block* current_block = nullptr;

namespace {

using State = Fiber::State;
constexpr int most_threads = 1024;

/// A warp operation that some of its lanes have reached.
struct Meeting {
    unsigned mask, arrived;
    WarpOperation operation;
    void* arguments[32];
    char* token;
};
struct Warp {
    Meeting meetings[8];
    int count = 0;
    char tokens[64];
    unsigned next_token = 0;
};

struct SharedArray {
    const void* tag;
    char* data;
};

/// A host thread that runs blocks, one at a time.
struct Worker {
    std::vector<Fiber> sets[2];
    std::vector<Fiber>* fibers = nullptr;
    char* stacks[2] = {};
    unsigned set = 0;
    Context host;
    void* host_tsan = nullptr;
    void* host_fake_stack = nullptr;
    const void* host_bottom = nullptr;
    std::size_t host_size = 0;

    Running* running = nullptr;
    Block block;
    int count = 0, live = 0, waiting = 0;
    unsigned epoch = 0;
    bool failed = false;
    std::string report;
    std::uint16_t ready[most_threads * 2];  // a ring
    unsigned head = 0, tail = 0;
    Warp warps[32];
    char barrier_tokens[2] = {};

    Worker* next_idle = nullptr;
    void* signal_stack = nullptr;
    char* arena = nullptr;
    std::size_t arena_bytes = 0, arena_used = 0, shared_bytes = 0;
    bool arena_wrapped = false;
    char arena_token = 0;
    SharedArray arrays[64];
    int array_count = 0;
    std::uint64_t random = 88172645463325252ull;

    unsigned ready_count() const { return tail - head; }
    void push(int fiber) { ready[tail++ % (most_threads * 2)] = std::uint16_t(fiber); }
    std::uint32_t below(std::uint32_t n) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return std::uint32_t((random >> 11) % n);
    }
    Fiber& pop() {
        const Options::Order order = options().order;
        if (order == Options::Order::reverse) return (*fibers)[ready[--tail % (most_threads * 2)]];
        std::uint16_t& first = ready[head % (most_threads * 2)];
        if (order == Options::Order::random)
            std::swap(first, ready[(head + below(ready_count())) % (most_threads * 2)]);
        return (*fibers)[ready[head++ % (most_threads * 2)]];
    }
};
thread_local Worker* worker = nullptr;

/// Workers of threads that have ended, for those to come: the kernel counts their thousands of pages with guards.
struct IdleWorkers {
    std::atomic_flag taken;  // not a mutex, which would order the threads in ThreadSanitizer's eyes
    Worker* first = nullptr;

    template <class F>
    void with(F&& f) {
        while (taken.test_and_set(std::memory_order_acquire)) sched_yield();
        f();
        taken.clear(std::memory_order_release);
    }
};
IdleWorkers& idle_workers() {
    static IdleWorkers* all = new IdleWorkers;
    return *all;
}

/// Gives this thread a worker until it ends.
void find_worker() {
    struct Return {
        ~Return() {
            idle_workers().with([] { worker->next_idle = std::exchange(idle_workers().first, worker); });
            worker = nullptr;
        }
    };
    idle_workers().with([] {
        worker = idle_workers().first;
        if (worker) idle_workers().first = worker->next_idle;
    });
    if (worker) {  // its fibers return to another host's stack now
        for (std::vector<Fiber>& set : worker->sets)
            for (Fiber& fiber : set) {
                fiber.fresh = true;
                // A new one comes after all that this thread has done, such as making its thread-local variables.
                GRADUS_TSAN(__tsan_destroy_fiber(fiber.tsan); fiber.tsan = __tsan_create_fiber(0);)
            }
        worker->host_bottom = nullptr, worker->host_fake_stack = nullptr;
    } else {
        worker = new Worker;
    }
    static thread_local const Return at_the_end;
    use_signal_stack(worker->signal_stack);
}

/// From one flow to another; null stands for the host's.
void change(Context& from, Context& to, [[maybe_unused]] Fiber* leaving, [[maybe_unused]] Fiber* entered) {
    Worker& w = *worker;
    current_thread = entered;
    GRADUS_TSAN(__tsan_switch_to_fiber(entered ? entered->tsan : w.host_tsan, 1);)
    GRADUS_ASAN(__sanitizer_start_switch_fiber(leaving ? &leaving->fake_stack : &w.host_fake_stack,
                                               entered ? entered->stack : w.host_bottom,
                                               entered ? stack_bytes : w.host_size);)
    switch_context(from, to);
    GRADUS_ASAN(const void* bottom; std::size_t size;
                __sanitizer_finish_switch_fiber(leaving ? leaving->fake_stack : w.host_fake_stack, &bottom, &size);)
    (void)w;
}

void to_host(Fiber& fiber) { change(fiber.context, worker->host, &fiber, nullptr); }

std::string at(const Place& place) {
    const char* name = std::strrchr(place.file ? place.file : "?", '/');
    return std::string(name ? name + 1 : place.file ? place.file : "?") + ":" + std::to_string(place.line);
}

std::string block_name() {
    const Worker& w = *worker;
    const char* name = w.running->launch.name;
    int length = int(std::strlen(name));
    if (name[0] == '(') ++name, length -= 2;  // a template stands in parentheses
    char text[240];
    std::snprintf(text, sizeof text, "kernel %.*s, block (%u, %u, %u)", length, name, w.block.index.x, w.block.index.y,
                  w.block.index.z);
    return text;
}

void report_deadlock() {
    const Worker& w = *worker;
    std::map<std::string, std::vector<int>> groups;
    for (int i = 0; i < w.count; ++i) {
        const Fiber& fiber = (*w.fibers)[std::size_t(i)];
        groups[fiber.state == State::done         ? "have ended"
               : fiber.state == State::at_barrier ? "wait at __syncthreads, " + at(fiber.place)
                                                  : std::string("wait in ") + fiber.what + ", " + at(fiber.place)]
            .push_back(i);
    }
    std::string text = block_name() + ": deadlock:";
    for (const auto& [what, threads] : groups)
        text += " " + std::to_string(threads.size()) + " threads (" + std::to_string(threads.front()) + " to " +
                std::to_string(threads.back()) + ") " + what + ";";
    fail_block(text);
}

/// Suspends a fiber that waits or has ended, and goes on with another.
void next(Fiber& fiber) {
    Worker& w = *worker;
    if (w.failed) return to_host(fiber);
    if (w.ready_count() == 0) {
        if (w.live > 0) report_deadlock();
        return to_host(fiber);
    }
    Fiber& other = w.pop();
    if (&other != &fiber) change(fiber.context, other.context, &fiber, &other);
}

/// All living threads are at a barrier: is it the same one, and is nobody missing?
void open_barrier() {
    Worker& w = *worker;
    const Fiber *first = nullptr, *other = nullptr;
    for (int i = 0; i < w.count; ++i) {
        const Fiber& fiber = (*w.fibers)[std::size_t(i)];
        if (fiber.state != State::at_barrier) continue;
        if (!first)
            first = &fiber;
        else if (!other &&
                 (fiber.place.line != first->place.line || std::strcmp(fiber.place.file, first->place.file) != 0))
            other = &fiber;
    }
    if (other)
        fail_block(block_name() + ": divergent __syncthreads: thread " + std::to_string(first->number) + " waits at " +
                   at(first->place) + ", thread " + std::to_string(other->number) + " at " + at(other->place));
    if (w.live != w.count)
        fail_block(block_name() + ": " + std::to_string(w.count - w.live) + " of " + std::to_string(w.count) +
                   " threads ended before __syncthreads at " + at(first->place));
    w.waiting = 0;
    ++w.epoch;
    for (int i = 0; i < w.count; ++i) {
        Fiber& fiber = (*w.fibers)[std::size_t(i)];
        if (fiber.state == State::at_barrier) fiber.state = State::ready, w.push(i);
    }
}

void fiber_main() {
    GRADUS_ASAN({
        const void* bottom;
        std::size_t size;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
        if (!worker->host_bottom) worker->host_bottom = bottom, worker->host_size = size;
    })
    for (;;) {
        GRADUS_TSAN(__tsan_acquire(&worker->running->start); __tsan_acquire(&worker->arena_token);
                    if (worker->arena_wrapped) __tsan_acquire(&worker->running->end);)
        worker->running->launch.body();
        Fiber& fiber = *current_fiber();
        for (int i = 0; i < fiber.group_count; ++i)
            if (fiber.groups[i].count > 0)
                trap("the thread ends with asynchronous copies that were never waited for", fiber.place);
        fiber.group_count = 0;
        GRADUS_TSAN(__tsan_release(&worker->running->end);)
        fiber.state = State::done;
        --worker->live;
        if (worker->live > 0 && worker->waiting == worker->live) open_barrier();
        next(fiber);
    }
}

/// Fibers for a block of this size, with stacks that end in pages nobody may touch.
void prepare(Worker& w, std::size_t count) {
    std::vector<Fiber>& fibers = w.sets[w.set];
    const std::size_t step = stack_bytes + guard_bytes;
    if (fibers.size() < count) {
        GRADUS_TSAN(for (Fiber& fiber : fibers) __tsan_destroy_fiber(fiber.tsan);)
        if (w.stacks[w.set]) {
            // Whoever is given these addresses next must not inherit what is poisoned in the frames.
            GRADUS_ASAN(for (Fiber& fiber : fibers) __asan_unpoison_memory_region(fiber.stack, stack_bytes);)
            munmap(w.stacks[w.set], fibers.size() * step);
        }
        fibers = std::vector<Fiber>(count);
        char* memory = static_cast<char*>(
            mmap(nullptr, count * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        w.stacks[w.set] = memory;
        for (std::size_t i = 0; i < count; ++i) {
            mprotect(memory + i * step, guard_bytes, PROT_NONE);
            fibers[i].stack = memory + i * step + guard_bytes;
            GRADUS_TSAN(fibers[i].tsan = __tsan_create_fiber(0);)
        }
    }
    w.fibers = &fibers;
}

void prepare_arena(Worker& w) {
    constexpr std::size_t block_most = 256 << 10;
    if (!w.arena) {
        w.arena_bytes = 512 << 10;
        GRADUS_TSAN(w.arena_bytes = 16 << 20;)
        w.arena = static_cast<char*>(
            mmap(nullptr, w.arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        GRADUS_TSAN(__tsan_release(&w.arena_token);)
    }
    w.arena_wrapped = false;
#if defined(GRADUS_EMULATION_TSAN)
    if (w.arena_used + block_most > w.arena_bytes) w.arena_used = 0, w.arena_wrapped = true;
#else
    w.arena_used = 0;
    (void)block_most;
#endif
    w.array_count = 0, w.shared_bytes = 0;
    GRADUS_ASAN(__asan_poison_memory_region(w.arena, w.arena_bytes);)
}

void run_block(Worker& w, Running& running, std::uint64_t number) {
    const dim3 grid = running.launch.grid, size = running.launch.block;
    w.running = &running;
    w.block = {{unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)},
               size,
               grid};
    w.count = w.live = int(size.x * size.y * size.z);
    w.waiting = 0, w.epoch = 0, w.failed = false;
    GRADUS_TSAN(w.set ^= 1;)
    prepare(w, std::size_t(w.count));
    prepare_arena(w);
    for (Warp& warp : w.warps) warp.count = 0;
    w.head = w.tail = 0;
    w.random = 0x9E3779B97F4A7C15ull * (options().seed + number * 7919 + 1) | 1;
    for (int i = 0; i < w.count; ++i) {
        Fiber& fiber = (*w.fibers)[std::size_t(i)];
        const unsigned n = unsigned(i);
        fiber.index = {n % size.x, n / size.x % size.y, n / (size.x * size.y)};
        fiber.number = n, fiber.lane = n & 31, fiber.warp = n >> 5;
        fiber.state = State::ready, fiber.group_count = 0, fiber.group_open = false;
        if (fiber.fresh) {
            GRADUS_ASAN(__asan_unpoison_memory_region(fiber.stack, stack_bytes);)
            make_context(fiber.context, fiber.stack, stack_bytes, &fiber_main);
            fiber.fresh = false, fiber.fake_stack = nullptr;
        }
        w.push(i);
    }
    current_block = &w.block;
    Fiber& first = w.pop();
    change(w.host, first.context, nullptr, &first);
    if (!w.failed) return;
    running.failed = true;
    for (int i = 0; i < w.count; ++i) {  // what was abandoned in the middle starts anew
        Fiber& fiber = (*w.fibers)[std::size_t(i)];
        if (fiber.state != State::done) fiber.fresh = true;
    }
}

// ---- host threads ----

struct Pool {
    std::mutex mutex;
    std::condition_variable wake, done;
    Running* job = nullptr;
    std::uint64_t generation = 0;
    int threads = 0, busy = 0;
    std::string report;
};
Pool& pool() {
    static Pool* all = new Pool;  // its threads wait for ever: never destroyed
    return *all;
}

std::string work(Running& running) {
    if (!worker) find_worker();
    GRADUS_TSAN(worker->host_tsan = __tsan_get_current_fiber();)
    worker->report.clear();
    for (std::uint64_t b;
         !running.failed && (b = running.next.fetch_add(1, std::memory_order_relaxed)) < running.blocks;)
        run_block(*worker, running, b);
    return worker->report;
}

void pool_main() {
    std::uint64_t seen = 0;
    Pool& all = pool();
    std::unique_lock lock(all.mutex);
    for (;;) {
        all.wake.wait(lock, [&] { return all.generation != seen; });
        seen = all.generation;
        Running* job = all.job;
        lock.unlock();
        const std::string report = work(*job);
        lock.lock();
        if (all.report.empty()) all.report = report;
        if (--all.busy == 0) all.done.notify_all();
    }
}

}  // namespace

void fail_block(const std::string& report) {
    Worker& w = *worker;
    if (!w.failed) w.report = report;
    w.failed = true;
}

Fiber* current_fiber() { return static_cast<Fiber*>(current_thread); }
std::uint32_t random_below(std::uint32_t n) { return worker->below(n); }

std::string whereabouts() { return block_name() + ", thread " + std::to_string(current_thread->number); }

void leave_block() {
    to_host(*current_fiber());
    __builtin_unreachable();
}

void trap(const char* what, Place place) {
    {
        // Gone before the fiber is left: nobody comes back to destroy it.
        const std::string report = whereabouts() + ": " + what + " (" + at(place) + ")";
        fail_block(report);
    }
    leave_block();
}

void barrier(Place place) {
    if (skipped("syncthreads", place.file, place.line)) return;
    Worker& w = *worker;
    Fiber& fiber = *current_fiber();
    fiber.place = place, fiber.state = State::at_barrier;
    ++w.waiting;
    GRADUS_TSAN(char* token = &w.barrier_tokens[w.epoch & 1]; __tsan_release(token);)
    if (w.waiting == w.live) open_barrier();
    next(fiber);
    GRADUS_TSAN(__tsan_acquire(token);)
}

void collective(unsigned mask, WarpOperation operation, void* argument, [[maybe_unused]] bool ordered, const char* what,
                Place place) {
    Worker& w = *worker;
    Fiber& fiber = *current_fiber();
    Warp& warp = w.warps[fiber.warp];
    fiber.place = place, fiber.what = what, fiber.mask = mask;
    if (!(mask >> fiber.lane & 1)) trap("the calling lane is not in the mask of a warp operation", place);
    const int first = int(fiber.warp) * 32;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        if (first + lane >= w.count)
            trap("the mask of a warp operation names a lane that the block does not have", place);
        if ((*w.fibers)[std::size_t(first + lane)].state == State::done)
            trap("the mask of a warp operation names a lane whose thread has ended", place);
    }
    Meeting* meeting = nullptr;
    for (int i = 0; i < warp.count; ++i) {
        if (warp.meetings[i].mask == mask)
            meeting = &warp.meetings[i];
        else if (warp.meetings[i].mask & mask)
            trap("lanes wait in warp operations with different masks that overlap", place);
    }
    if (!meeting) {
        meeting = &warp.meetings[warp.count++];
        *meeting = {mask, 0, operation, {}, &warp.tokens[warp.next_token++ % 64]};
    }
    if (meeting->operation != operation) trap("lanes of one mask are in different warp operations", place);
    meeting->arguments[fiber.lane] = argument;
    meeting->arrived |= 1u << fiber.lane;
    GRADUS_TSAN(char* token = meeting->token; if (ordered) __tsan_release(token);)
    if (meeting->arrived != mask) {
        fiber.state = State::in_warp_operation;
        next(fiber);
    } else {
        Meeting full = *meeting;
        *meeting = warp.meetings[--warp.count];
        for (unsigned others = mask & ~(1u << fiber.lane); others; others &= others - 1) {
            const int other = first + __builtin_ctz(others);
            (*w.fibers)[std::size_t(other)].state = State::ready;
            w.push(other);
        }
        operation(full.arguments, mask);
        if (options().order != Options::Order::in_order) {
            w.push(int(fiber.number));
            next(fiber);
        }
    }
    GRADUS_TSAN(if (ordered) __tsan_acquire(token);)
}

void fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    GRADUS_TSAN(static char token; __tsan_acquire(&token); __tsan_release(&token);)
}

void* shared_memory(const void* tag, std::size_t bytes) {
    Worker& w = *worker;
    for (int i = 0; i < w.array_count; ++i)
        if (w.arrays[i].tag == tag) return w.arrays[i].data;
    constexpr std::size_t red_zone = 64;
    const std::size_t start = (w.arena_used + 15) / 16 * 16;
    w.shared_bytes += bytes;
    if (w.shared_bytes > w.running->launch.shared_limit || w.array_count == 64)
        trap(
            "more shared memory than a block may have: 227 KiB, and 48 KiB unless cudaFuncSetAttribute has allowed "
            "more",
            current_fiber()->place);
    char* data = w.arena + start;
    GRADUS_ASAN(__asan_unpoison_memory_region(data, bytes);)
    if (options().poison)
        for (std::size_t i = 0; i < bytes; ++i) static_cast<volatile char*>(data)[i] = char(0xff);
    w.arena_used = start + bytes + red_zone;
    w.arrays[w.array_count++] = {tag, data};
    return data;
}

void* dynamic_shared_memory() {
    static const char tag = 0;
    return shared_memory(&tag, std::max<std::size_t>(worker->running->launch.shared_bytes, 1));
}

void copy_bytes(void* target, const void* source, std::size_t n) {
    GRADUS_TSAN(__tsan_read_range(const_cast<void*>(source), n); __tsan_write_range(target, n);)
    volatile char* to = static_cast<volatile char*>(target);
    const volatile char* from = static_cast<const volatile char*>(source);
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
}

std::string run(const Launch& launch) {
    catch_faults();
    Running running{launch};
    running.blocks = std::uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    GRADUS_TSAN(__tsan_release(&running.start);)
    std::string report;
    if (options().workers > 1 && running.blocks > 1) {
        Pool& all = pool();
        std::unique_lock lock(all.mutex);
        for (; all.threads < options().workers - 1; ++all.threads) std::thread(pool_main).detach();
        all.job = &running, all.report.clear(), all.busy = all.threads, ++all.generation;
        all.wake.notify_all();
        lock.unlock();
        report = work(running);
        lock.lock();
        all.done.wait(lock, [&] { return all.busy == 0; });
        if (report.empty()) report = all.report;
    } else {
        report = work(running);
    }
    GRADUS_TSAN(__tsan_acquire(&running.end);)
    return report;
}

}  // namespace gradus::emulation
