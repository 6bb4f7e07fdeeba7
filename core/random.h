// The generator: (seed, step, draw number), from which every random element follows.
#pragma once

#include <cstdint>

#include "gradus/core/philox.h"

namespace gradus {

/// Hands out draws in program order. Copy it to save its state; the same state continues with the same numbers, bit for
/// bit.
class Generator {
  public:
    explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
    /// The next draw; carries the thread's RandomScope, so that replicas number their samples by the whole batch.
    Draw next();
    /// Opens a new step: draw numbers start again at 0, so that a step's numbers do not depend on the steps before it.
    void begin_step(std::uint32_t step) { step_ = step, number_ = 0; }

    std::uint64_t seed() const { return seed_; }
    std::uint32_t step() const { return step_; }
    std::uint32_t number() const { return number_; }
    bool operator==(const Generator&) const = default;
    static Generator restore(std::uint64_t seed, std::uint32_t step, std::uint32_t number);

  private:
    std::uint64_t seed_;
    std::uint32_t step_ = 0, number_ = 0;
};

/// The thread's generator, which ops use where none is passed. Starts with seed 0.
Generator& default_generator();
/// Starts the thread's generator anew: everything drawn after it depends on the seed alone.
void manual_seed(std::uint64_t seed);

}  // namespace gradus
