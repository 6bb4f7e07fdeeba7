#include "gradus/core/device.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>

#include "gradus/core/error.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cuda.h"
#endif

namespace gradus {
namespace {

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) == 0) {
            const auto colon = line.find(": ");
            if (colon != std::string::npos) return line.substr(colon + 2);
        }
    }
    return "CPU";
}

int cpu_devices() {
    const char* text = std::getenv("GRADUS_CPU_DEVICES");
    if (!text) return 1;
    int n = 0;
    const std::string_view view(text);
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), n);
    check(error == std::errc() && end == view.data() + view.size() && n >= 1 && n <= 64,
          "GRADUS_CPU_DEVICES: expected a number from 1 to 64: got \"", view, "\"");
    return n;
}

}  // namespace

Device Device::parse(std::string_view text) {
    const auto colon = text.find(':');
    const std::string_view kind = text.substr(0, colon);
    Device device;
    if (kind == "cuda") {
        check(colon != std::string_view::npos, "device: \"cuda\" needs a card's number: write \"cuda:0\"");
        device.kind = Device::cuda;
    } else {
        check(kind == "cpu", "device: expected \"cpu\", \"cpu:N\" or \"cuda:N\": got \"", text, "\"");
    }
    if (colon != std::string_view::npos) {
        const std::string_view digits = text.substr(colon + 1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
        check(error == std::errc() && end == digits.data() + digits.size() && device.index >= 0,
              "device: expected \"cpu\", \"cpu:N\" or \"cuda:N\": got \"", text, "\"");
    }
    return device;
}

std::string to_string(const Device& device) {
    if (device.kind == Device::cuda) return "cuda:" + std::to_string(device.index);
    return device.index == 0 ? "cpu" : "cpu:" + std::to_string(device.index);
}

int device_count(Device::Kind kind) {
    static const int cpus = cpu_devices();
    if (kind == Device::cpu) return cpus;
#ifdef GRADUS_HAS_CUDA
    return cuda_device_count();
#else
    return 0;
#endif
}

void check_device(const Device& device) {
    if (device.index >= 0 && device.index < device_count(device.kind)) return;
    if (device.kind == Device::cuda) {
#ifdef GRADUS_HAS_CUDA
        const int count = cuda_device_count();
        if (count > 0)
            fail("device: ", device, " does not exist: there are ", count, " cards, cuda:0 to cuda:", count - 1);
        fail("device: ", device, " is not available: ", cuda_absence(), ", or use \"cpu\"");
#else
        fail("device: ", device, " is not available: this build of Gradus has no CUDA: configure it with ",
             "-DGRADUS_CUDA=real, or use \"cpu\"");
#endif
    }
    fail("device: ", device, " does not exist: there are ", device_count(Device::cpu),
         " CPU devices: set GRADUS_CPU_DEVICES to have more");
}

std::vector<DeviceInfo> devices() {
    const std::int64_t memory = std::int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    std::vector<DeviceInfo> all;
    for (int i = 0; i < device_count(Device::cpu); ++i)
        all.push_back({Device{Device::cpu, i}, cpu_name(), "cpu-" + std::to_string(i), memory});
#ifdef GRADUS_HAS_CUDA
    append_cuda_devices(all);
#endif
    return all;
}

}  // namespace gradus
