// Splitting loops over the cores: a pool of threads that spin briefly for the next loop and then sleep.
#pragma once

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace gradus {

/// How many threads a loop may use: GRADUS_THREADS, else OMP_NUM_THREADS, else the cores this process may run on.
int thread_count();
void set_thread_count(int threads);  ///< for the whole process; results do not depend on it

/// While one lives no signal is handled on this thread: a handler's frame would land in memory that oneDNN's generated
/// code uses below the stack pointer. Signals wait and are handled afterwards. On the pool's own threads they are
/// blocked for good.
class SignalsBlocked {
  public:
    SignalsBlocked();
    ~SignalsBlocked();
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    bool blocked_here_;
    sigset_t before_;
};

namespace detail {
using Task = void (*)(void* context, std::int64_t index);
/// Runs task(context, 0 … count - 1), each once, in any order; returns when all are done. Throws the first exception of
/// a task.
void run_tasks(std::int64_t count, Task task, void* context);
bool inside_task();
}  // namespace detail

/// f(begin, end) over disjoint pieces of [0, n), each of at least `grain` elements (the last may be shorter). A loop
/// inside a loop, or one while another thread's loop is running, goes through on the calling thread.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    const std::int64_t threads = thread_count();
    if (n <= grain || threads == 1 || detail::inside_task()) return f(std::int64_t(0), n);
    struct Loop {
        F& f;
        std::int64_t n, piece;
    } loop{f, n, std::max(grain, (n + threads * 4 - 1) / (threads * 4))};
    detail::run_tasks((n + loop.piece - 1) / loop.piece,
                      [](void* context, std::int64_t index) {
                          const Loop& l = *static_cast<Loop*>(context);
                          l.f(index * l.piece, std::min(l.n, (index + 1) * l.piece));
                      },
                      &loop);
}

/// f(index) for index in [0, count), each a task of its own: for work whose split must not depend on the thread count.
template <class F>
void parallel_tasks(std::int64_t count, F&& f) {
    if (count <= 0) return;
    if (count == 1 || thread_count() == 1 || detail::inside_task()) {
        for (std::int64_t i = 0; i < count; ++i) f(i);
        return;
    }
    detail::run_tasks(
        count, [](void* context, std::int64_t index) { (*static_cast<std::remove_reference_t<F>*>(context))(index); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace gradus
