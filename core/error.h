// The one exception of the library and the two ways to raise it.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradus {

/// What every failing call throws. The text reads `op: what is wrong: the values, the fix`.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Any type with `std::string to_string(const T&)` beside it can stand in an error text.
inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, const char* part) { text += part; }
inline void append(std::string& text, const std::string& part) { text += part; }
inline void append(std::string& text, bool part) { text += part ? "true" : "false"; }
inline void append(std::string& text, char part) { text += part; }
void append(std::string& text, double part);  ///< shortest form that reads back the same
template <std::integral T>
void append(std::string& text, T part) {
    text += std::to_string(part);
}
template <class T>
requires requires(const T& x) {
    { to_string(x) } -> std::convertible_to<std::string>;
}
void append(std::string& text, const T& part) { text += to_string(part); }

/// Joins values to one string; the parts may be anything `append` takes.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::string joined;
    (append(joined, parts), ...);
    return joined;
}

/// Throws Error; adds the path of the module that is running, where one is known.
[[noreturn]] void raise(std::string message);

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
    raise(text(parts...));
}

/// Throws Error with the joined parts unless `ok`; the text is only built on failure.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
    if (!ok) [[unlikely]]
        fail(parts...);
}

}  // namespace gradus
