#include "gradus/core/thread_state.h"

#include <cstdlib>
#include <string_view>

namespace gradus {
namespace {

ThreadState initial() {
    static const bool anomaly = [] {
        const char* text = std::getenv("GRADUS_ANOMALY");
        return text && std::string_view(text) != "0" && *text;
    }();
    ThreadState state;
    state.anomaly = anomaly;
    return state;
}

}  // namespace

ThreadState& thread_state() {
    static thread_local ThreadState state = initial();
    return state;
}

}  // namespace gradus
