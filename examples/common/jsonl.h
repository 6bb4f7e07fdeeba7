// JSON lines: a log file that holds one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::examples {

/// A JSON object built member by member, in the order of the calls.
class JsonObject {
  public:
    /// A number in the shortest form that reads back to the same double; NaN and infinities become null.
    JsonObject& add(std::string_view name, double value);
    JsonObject& add(std::string_view name, int64_t value);
    JsonObject& add(std::string_view name, int value) { return add(name, static_cast<int64_t>(value)); }
    JsonObject& add(std::string_view name, bool value);
    /// A string; bytes that are not UTF-8 become U+FFFD.
    JsonObject& add(std::string_view name, std::string_view value);
    JsonObject& add(std::string_view name, const std::string& value) { return add(name, std::string_view(value)); }
    JsonObject& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
    JsonObject& add(std::string_view name, const std::vector<double>& values);

    /// The object on one line, without a line end.
    std::string text() const { return "{" + members_ + "}"; }

  private:
    JsonObject& member(std::string_view name, const std::string& value);

    std::string members_;
};

/// Appends objects to a file; each is written whole and at once, so that a killed run leaves complete lines.
class JsonLines {
  public:
    /// Opens for appending, making the file and its folders; `fresh` empties it first. A last line without an end, left
    /// by a crash, is ended first. Throws gradus::Error naming the path and the system's reason.
    explicit JsonLines(std::filesystem::path path, bool fresh = false);
    ~JsonLines();
    JsonLines(const JsonLines&) = delete;
    JsonLines& operator=(const JsonLines&) = delete;

    /// Appends one line. Throws gradus::Error naming the path and the system's reason.
    void write(const JsonObject& object);

  private:
    void append(std::string_view bytes);

    std::filesystem::path path_;
    int file_ = -1;
};

}  // namespace gradus::examples
