#include "gradus/examples/common/session.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <iostream>

#include "gradus/core/device.h"
#include "gradus/core/error.h"
#include "gradus/nn/checkpoint.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> stop = false;

void on_interrupt(int) {
    if (stop.exchange(true)) _exit(interrupted);
    constexpr char message[] = "\ninterrupt: stopping as soon as the state is saved (again: quit at once)\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof message - 1);
}

bool holds_run(const fs::path& folder) {
    return fs::exists(folder / "log.jsonl") || fs::exists(folder / "source.model") || has_checkpoint(folder);
}

}  // namespace

void stop_on_interrupt() {
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
}

const std::atomic<bool>& stop_requested() { return stop; }

void make_room(const std::string& program, const fs::path& given) {
    fs::path out = given.lexically_normal();
    if (out.filename().empty()) out = out.parent_path();  // run/
    if (!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out))) return;
    check(fs::is_directory(out) && holds_run(out), program, ": ", out.string(),
          " exists and holds no run: choose another --out");
    fs::path aside;
    for (int n = 1; fs::exists(aside = text(out.string(), "-", n)); ++n) {
    }
    std::error_code error;
    fs::rename(out, aside, error);
    check(!error, program, ": cannot move the earlier run ", out.string(), " to ", aside.string(), ": ",
          error.message(), ": choose another --out");
    std::cerr << "kept the earlier run as " << aside.string() << "\n";
}

void check_training_device(const std::string& program, const std::string& name) {
    const Device device = Device::parse(name);
    check_device(device);
    for (const DeviceInfo& info : devices())
        if (info.device == device && info.emulated)
            std::cerr
                << program << ": " << name
                << " is emulated on the CPU, thread by thread: right, and some thousand times slower than a card\n";
}

std::string device_choice() {
    std::string all;
    for (const DeviceInfo& info : devices())
        append(all, text(all.empty() ? "" : ", ", info.device,
                         info.device.kind == Device::cuda ? text(" (", info.name, ")") : std::string()));
    return all;
}

std::string check_seed(const std::string& given) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), seed);
    const bool whole = error == std::errc() && end == given.data() + given.size();
    return whole ? "" : "must be a whole number from 0 to 2^64 - 1: got '" + given + "'";
}

}  // namespace gradus::examples
