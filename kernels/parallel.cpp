#include "gradus/kernels/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "gradus/core/error.h"

#if GRADUS_LIBGOMP
extern "C" void omp_set_num_threads(int);
#endif

namespace gradus {
namespace {

thread_local bool in_task = false, signals_blocked = false;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

/// oneDNN brings OpenMP: on our threads it must not start threads of its own.
void one_openmp_thread() {
#if GRADUS_LIBGOMP
    omp_set_num_threads(1);
#endif
}

class ThreadPool {
  public:
    explicit ThreadPool(int threads) {
        const SignalsBlocked scope;
        try {
            for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            // The system has no more threads to give: those that started do the work.
        }
    }
    ~ThreadPool() {
        {
            const std::lock_guard lock(mutex_);
            stop_.store(true);
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    /// False when another thread's loop is running: the caller then does the work itself.
    bool run(std::int64_t count, detail::Task task, void* context) {
        if (!busy_.try_lock()) return false;
        const std::lock_guard owner(busy_, std::adopt_lock);
        task_ = task, context_ = context, count_ = count;
        next_.store(0, std::memory_order_relaxed);
        failed_ = nullptr;
        left_.store(int(workers_.size()), std::memory_order_relaxed);
        {
            const std::lock_guard lock(mutex_);
            round_.fetch_add(1, std::memory_order_release);
        }
        if (sleeping_.load(std::memory_order_acquire) > 0) wake_.notify_all();
        take_tasks();
        for (int spin = 0; left_.load(std::memory_order_acquire) > 0; ++spin)
            if (spin < 4000)
                pause();
            else
                std::this_thread::yield();  // the worker may be waiting for this very core
        if (failed_) std::rethrow_exception(failed_);
        return true;
    }

  private:
    void take_tasks() {
        in_task = true;
        for (;;) {
            const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
            if (index >= count_) break;
            try {
                task_(context_, index);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!failed_) failed_ = std::current_exception();
            }
        }
        in_task = false;
    }

    void work() {
        signals_blocked = true;  // inherited from the constructor's SignalsBlocked
        one_openmp_thread();
        for (std::uint64_t seen = 0;;) {
            if (!wait_for_round(seen)) return;
            ++seen;
            take_tasks();
            left_.fetch_sub(1, std::memory_order_release);
        }
    }

    bool wait_for_round(std::uint64_t seen) {
        for (int spin = 0; spin < 4000; ++spin) {
            if (round_.load(std::memory_order_acquire) != seen) return true;
            if (stop_.load(std::memory_order_relaxed)) return false;
            pause();
        }
        std::unique_lock lock(mutex_);
        sleeping_.fetch_add(1);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != seen || stop_.load(); });
        sleeping_.fetch_sub(1);
        return !stop_.load();
    }

    std::vector<std::thread> workers_;
    std::mutex busy_, mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> round_ = 0;
    std::atomic<int> left_ = 0, sleeping_ = 0;
    std::atomic<bool> stop_ = false;
    std::atomic<std::int64_t> next_ = 0;
    detail::Task task_ = nullptr;
    void* context_ = nullptr;
    std::int64_t count_ = 0;
    std::exception_ptr failed_;
};

int read_count(const char* name) {
    const char* text = std::getenv(name);
    if (!text) return 0;
    const std::string_view view(text);
    int n = 0;
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), n);
    return error == std::errc() && end == view.data() + view.size() && n >= 1 && n <= 1024 ? n : 0;
}

int cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency());
}

int initial_count() {
    if (const int n = read_count("GRADUS_THREADS")) return n;
    if (const char* text = std::getenv("GRADUS_THREADS"))
        fail("GRADUS_THREADS: expected a number from 1 to 1024: got \"", text, "\"");
    if (const int n = read_count("OMP_NUM_THREADS")) return n;
    return std::max(1, cores());
}

std::atomic<int>& count() {
    static std::atomic<int> threads = initial_count();
    return threads;
}

std::mutex& pool_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
}

// Kept until the process ends: loops may still run while statics are destroyed.
std::shared_ptr<ThreadPool>& current_pool() {
    static auto* pool = new std::shared_ptr<ThreadPool>;
    return *pool;
}

/// After fork() only the calling thread goes on: the child forgets the parent's pool and makes its own when it needs
/// one.
void forget_pool() {
    new (&pool_mutex()) std::mutex;
    new (&current_pool()) std::shared_ptr<ThreadPool>;
}

std::shared_ptr<ThreadPool> pool() {
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    (void)registered;
    const std::lock_guard lock(pool_mutex());
    std::shared_ptr<ThreadPool>& current = current_pool();
    if (!current) current = std::make_shared<ThreadPool>(count().load());
    return current;
}

}  // namespace

int thread_count() { return count().load(std::memory_order_relaxed); }

void set_thread_count(int threads) {
    check(threads >= 1 && threads <= 1024, "set_thread_count: expected 1 to 1024: got ", threads);
    std::shared_ptr<ThreadPool> old;  // joined outside the lock
    const std::lock_guard lock(pool_mutex());
    count().store(threads);
    old.swap(current_pool());
}

SignalsBlocked::SignalsBlocked() : blocked_here_(!signals_blocked) {
    if (!blocked_here_) return;
    sigset_t all;
    sigfillset(&all);
    // What the processor raises itself cannot wait.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    signals_blocked = true;
}

SignalsBlocked::~SignalsBlocked() {
    if (!blocked_here_) return;
    signals_blocked = false;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool detail::inside_task() { return in_task; }

void detail::run_tasks(std::int64_t count, Task task, void* context) {
    const std::shared_ptr<ThreadPool> threads = pool();
    if (threads->run(count, task, context)) return;
    in_task = true;
    try {
        for (std::int64_t i = 0; i < count; ++i) task(context, i);
    } catch (...) {
        in_task = false;
        throw;
    }
    in_task = false;
}

}  // namespace gradus
