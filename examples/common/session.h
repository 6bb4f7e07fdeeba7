// What the training programs share: stopping on ctrl-C, keeping earlier runs, reading a seed.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>

namespace gradus::examples {

inline constexpr int interrupted = 130;  ///< the exit status after ctrl-C

/// From here on ctrl-C (and a request to terminate) asks to stop and says so; the second time the process ends at once.
void stop_on_interrupt();
const std::atomic<bool>& stop_requested();

/// Makes a folder free for a new run: a folder that holds a run moves aside to <folder>-1, -2, ... and standard error
/// says so. Throws gradus::Error when something else is there.
void make_room(const std::string& program, const std::filesystem::path& given);

/// Throws unless "cpu", "cuda:0", … names a device that is there. Says so on standard error when the card is emulated:
/// nobody should train on the emulator by accident.
void check_training_device(const std::string& program, const std::string& name);
/// "cpu, cuda:0 (NVIDIA H200), …": what --help lists.
std::string device_choice();

/// For CLI11's check: empty when `given` is a whole number from 0 to 2^64 - 1, else what is wrong. (CLI11 itself
/// wraps.)
std::string check_seed(const std::string& given);

}  // namespace gradus::examples
