// How the emulator orders what CUDA leaves open; set by the environment, or by a test.
#pragma once

#include <cstdint>

namespace gradus::emulation {

struct Options {
    /// Which of a block's threads goes on at a switch. GRADUS_EMULATOR_ORDER=in_order|reverse|random
    enum class Order : std::uint8_t { in_order, reverse, random } order = Order::in_order;
    /// When a stream's work runs: when the host waits for it, when it is given, or some of it now and then.
    /// GRADUS_EMULATOR_STREAMS=lazy|eager|random
    enum class Streams : std::uint8_t { lazy, eager, random } streams = Streams::lazy;
    /// When an asynchronous copy to shared memory arrives: at its wait, at once, or either.
    /// GRADUS_EMULATOR_COPIES=late|eager|random
    enum class Copies : std::uint8_t { late, eager, random } copies = Copies::late;
    std::uint64_t seed = 1;  ///< of all that is random: GRADUS_EMULATOR_SEED
    int workers = 1;         ///< host threads that run blocks: GRADUS_EMULATOR_WORKERS
    bool protect = true;     ///< device memory is out of the host's reach while no kernel runs
    bool poison = true;      ///< shared memory starts as 0xff bytes, which read as NaN
};

Options& options();

/// Is the barrier or wait at this place taken out for a mutation test (GRADUS_EMULATOR_SKIP=file.cu:123)? Also writes
/// the place to the file that GRADUS_EMULATOR_COVERAGE names, each once.
bool skipped(const char* kind, const char* file, int line);

}  // namespace gradus::emulation
