// A device tag: where a tensor's elements live.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

struct Device {
    enum Kind : std::uint8_t { cpu, cuda } kind = cpu;
    int index = 0;
    auto operator<=>(const Device&) const = default;

    /// Reads "cpu", "cpu:1", "cuda:0". A bare "cuda" is refused: there is no default card.
    static Device parse(std::string_view text);
};

std::string to_string(const Device& device);  ///< "cpu" (index 0), "cpu:1", "cuda:0"

/// How many devices of a kind this build and machine offer. CPU devices are logical: GRADUS_CPU_DEVICES (default 1) of
/// them, each with a pool of its own, so that multi-device code runs anywhere.
int device_count(Device::Kind kind);

/// Throws unless the device exists; the text says why not and what to do.
void check_device(const Device& device);

struct DeviceInfo {
    Device device;
    std::string name;
    std::string uuid;
    std::int64_t memory = 0;  ///< bytes
    bool emulated = false;    ///< a card that is the CPU in disguise
};
std::vector<DeviceInfo> devices();  ///< every device that can be used

}  // namespace gradus
