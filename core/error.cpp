#include "gradus/core/error.h"

#include <charconv>
#include <cmath>

#include "gradus/core/thread_state.h"

namespace gradus {

void append(std::string& text, double part) {
    if (std::isnan(part)) {
        text += "nan";
        return;
    }
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, part).ptr;
    text.append(digits, end);
}

void raise(std::string message) {
    const std::string where = thread_state().frame ? thread_state().frame->path() : std::string();
    if (!where.empty()) message += " (in " + where + ")";
    throw Error(message);
}

}  // namespace gradus
