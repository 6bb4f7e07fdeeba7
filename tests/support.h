// What every test includes: Catch2 (2 or 3) and a few helpers.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <string>

#include "gradus/core/device.h"
#include "gradus/core/error.h"
#include "gradus/core/stream.h"

namespace gradus::tests {

/// The text of the Error that `f` throws; fails the test when it throws none.
template <class F>
std::string error_of(F&& f) {
    try {
        f();
        // What a card finds in its data is told when the host waits for it.
        for (int i = 0; i < device_count(Device::cuda); ++i) synchronize(Device{Device::cuda, i});
    } catch (const Error& error) {
        return error.what();
    }
    FAIL("expected a gradus::Error, none was thrown");
    return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace gradus::tests
