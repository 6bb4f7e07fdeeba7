#include "gradus/examples/common/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"

namespace gradus::examples {

namespace {

std::string quote(std::string_view raw) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : repair_utf8(raw)) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (byte < 0x20 || byte == 0x7f) {
            out += "\\u00";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        } else {
            out += c;
        }
    }
    return out + '"';
}

std::string number(double value) {
    if (!std::isfinite(value)) return "null";
    char buffer[32];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace

JsonObject& JsonObject::member(std::string_view name, const std::string& value) {
    if (!members_.empty()) members_ += ", ";
    members_ += quote(name) + ": " + value;
    return *this;
}

JsonObject& JsonObject::add(std::string_view name, double value) { return member(name, number(value)); }
JsonObject& JsonObject::add(std::string_view name, int64_t value) { return member(name, std::to_string(value)); }
JsonObject& JsonObject::add(std::string_view name, bool value) { return member(name, value ? "true" : "false"); }
JsonObject& JsonObject::add(std::string_view name, std::string_view value) { return member(name, quote(value)); }

JsonObject& JsonObject::add(std::string_view name, const std::vector<double>& values) {
    std::string list;
    for (const double value : values) list += (list.empty() ? "" : ", ") + number(value);
    return member(name, "[" + list + "]");
}

JsonLines::JsonLines(std::filesystem::path path, bool fresh) : path_(std::move(path)) {
    if (path_.has_parent_path()) make_folder(path_.parent_path());
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (fresh ? O_TRUNC : 0), 0666);
    if (file_ < 0) fail("cannot open ", path_.string(), ": ", std::strerror(errno), " (errno ", errno, ")");
    const off_t size = ::lseek(file_, 0, SEEK_END);
    char last = '\n';
    if (size > 0 && ::pread(file_, &last, 1, size - 1) == 1 && last != '\n') append("\n");
}

JsonLines::~JsonLines() {
    if (file_ >= 0) ::close(file_);
}

void JsonLines::write(const JsonObject& object) { append(object.text() + "\n"); }

void JsonLines::append(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(file_, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("cannot write ", path_.string(), ": ", std::strerror(errno), " (errno ", errno, ")");
        bytes.remove_prefix(static_cast<size_t>(count));
    }
}

}  // namespace gradus::examples
