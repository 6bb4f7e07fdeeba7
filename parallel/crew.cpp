#include "gradus/parallel/crew.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "gradus/core/thread_state.h"
#include "gradus/parallel/communicator.h"

namespace gradus::parallel {

struct Crew::State {
    std::mutex mutex;
    std::condition_variable changed;
    const std::function<void(int)>* work = nullptr;
    const std::function<void(int, const std::exception&)>* failed = nullptr;
    ThreadState caller;
    std::uint64_t round = 0;
    int busy = 0;
    bool ending = false;
    std::vector<std::exception_ptr> errors;
    std::vector<std::thread> threads;

    void live(int rank) {
        std::uint64_t seen = 0;
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return ending || round != seen; });
            if (ending) return;
            seen = round;
            lock.unlock();
            std::exception_ptr error;
            try {
                const ThreadStateGuard guard(caller);
                (*work)(rank);
            } catch (const std::exception& thrown) {
                error = std::current_exception();
                if (*failed) (*failed)(rank, thrown);
            }
            lock.lock();
            errors[std::size_t(rank)] = error;
            if (--busy == 0) changed.notify_all();
        }
    }
};

Crew::Crew(int ranks) : state_(std::make_unique<State>()) {
    state_->errors.resize(std::size_t(ranks));
    for (int r = 0; r < ranks; ++r) state_->threads.emplace_back([s = state_.get(), r] { s->live(r); });
}

Crew::~Crew() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->ending = true;
        state_->changed.notify_all();
    }
    for (std::thread& thread : state_->threads) thread.join();
}

int Crew::size() const { return int(state_->threads.size()); }

void Crew::run(const std::function<void(int)>& work, const std::function<void(int, const std::exception&)>& failed) {
    State& s = *state_;
    {
        std::unique_lock lock(s.mutex);
        s.work = &work, s.failed = &failed, s.caller = thread_state();
        s.errors.assign(s.errors.size(), nullptr);
        s.busy = size();
        ++s.round;
        s.changed.notify_all();
        s.changed.wait(lock, [&] { return s.busy == 0; });
    }
    std::exception_ptr first;
    for (const std::exception_ptr& error : s.errors) {
        if (!error) continue;
        if (!first) first = error;
        try {
            std::rethrow_exception(error);
        } catch (const GroupError&) {  // told by another rank's failure
        } catch (...) {
            std::rethrow_exception(error);
        }
    }
    if (first) std::rethrow_exception(first);
}

}  // namespace gradus::parallel
