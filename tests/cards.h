// The cards a test runs on: real ones or emulated ones.
#pragma once

#include "gradus/core/device.h"
#include "gradus/tests/support.h"

namespace gradus::tests {

inline Device card(int index) { return {Device::cuda, index}; }
/// Not the first card, where there are several.
inline Device last_card() { return card(device_count(Device::cuda) - 1); }

/// False, after a line that says so, where there are fewer than `wanted` cards.
inline bool have_cards(int wanted) {
    if (device_count(Device::cuda) >= wanted) return true;
    WARN("not run: needs " << wanted << " cards, there are " << device_count(Device::cuda)
                           << " (GRADUS_EMULATED_DEVICES=2 emulates two)");
    return false;
}

}  // namespace gradus::tests
