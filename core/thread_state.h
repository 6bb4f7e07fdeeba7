// Everything a thread carries besides its data: grad mode, random scope, the module that is running.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace gradus {

/// Which module is running, as a chain from the innermost outwards. The nn layer pushes frames; core only asks for the
/// path.
struct Frame {
    const Frame* outer = nullptr;
    virtual std::string path() const = 0;

  protected:
    ~Frame() = default;
};

/// The part of a batch that this thread works on: element draws are numbered by the sample's place in the whole batch.
struct RandomScope {
    bool open = false;
    std::int64_t first_sample = 0;  ///< the number of this thread's first sample in the whole batch
    std::int64_t samples = 0;       ///< how many samples the local batch holds
};

inline constexpr int max_cards = 16;

struct ThreadState {
    bool grad_mode = true;
    bool anomaly = false;  ///< look for NaN and Inf after every op
    RandomScope random_scope;
    const Frame* frame = nullptr;
    std::array<void*, max_cards> streams{};  ///< the current cudaStream_t of each card; null: the card's own
};

/// This thread's state; a helper thread is given a copy of its caller's, whole.
ThreadState& thread_state();

/// Sets the state for a scope and puts the old one back on every way out.
class ThreadStateGuard {
  public:
    explicit ThreadStateGuard(const ThreadState& state) : before_(thread_state()) { thread_state() = state; }
    ~ThreadStateGuard() { thread_state() = before_; }
    ThreadStateGuard(const ThreadStateGuard&) = delete;
    ThreadStateGuard& operator=(const ThreadStateGuard&) = delete;

  private:
    ThreadState before_;
};

}  // namespace gradus
