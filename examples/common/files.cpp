#include "gradus/examples/common/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "gradus/core/error.h"

namespace gradus::examples {

namespace {

// Closes a descriptor on every way out; `close_checked` reports what only close reveals (a full disk over NFS).
struct Descriptor {
    int value = -1;
    ~Descriptor() {
        if (value >= 0) ::close(value);
    }
    bool close_checked() {
        const int old = value;
        value = -1;
        return ::close(old) == 0;
    }
};

[[noreturn]] void fail_with_errno(const char* what, const std::filesystem::path& path, int code) {
    fail(what, " ", path.string(), ": ", std::strerror(code), " (errno ", code, ")");
}

// The length of the well-formed UTF-8 character at `at`, or 0.
size_t character_length(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    if (lead == 0xe0 && byte(1) < 0xa0) return 0;
    if (lead == 0xed && byte(1) > 0x9f) return 0;
    if (lead == 0xf0 && byte(1) < 0x90) return 0;
    if (lead == 0xf4 && byte(1) > 0x8f) return 0;
    return length;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
    Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.value < 0) fail_with_errno("cannot open", path, errno);
    std::string bytes;
    char buffer[1 << 16];
    for (;;) {
        const ssize_t count = ::read(file.value, buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail_with_errno("cannot read", path, errno);
        if (count == 0) return bytes;
        bytes.append(buffer, static_cast<size_t>(count));
    }
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
    if (path.has_parent_path()) make_folder(path.parent_path());
    std::string temporary = path.string() + ".XXXXXX";
    Descriptor file{::mkostemp(temporary.data(), O_CLOEXEC)};
    if (file.value < 0) fail_with_errno("cannot write", path, errno);
    const auto give_up = [&](int code) {
        ::unlink(temporary.c_str());
        fail_with_errno("cannot write", path, code);
    };
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t count = ::write(file.value, bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) give_up(errno);
        done += static_cast<size_t>(count);
    }
    // mkostemp makes the file private; give it the mode any other new file would have.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(file.value, 0666 & ~mask) != 0 || !file.close_checked()) give_up(errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) give_up(errno);
}

void make_folder(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) fail_with_errno("cannot make the folder", path, error.value());
}

bool is_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t length = character_length(text, at);
        if (length == 0) return false;
        at += length;
    }
    return true;
}

std::string repair_utf8(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t length = character_length(text, at);
        out += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, length);
        at += length == 0 ? 1 : length;
    }
    return out;
}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent) {
    std::error_code error;
    const std::filesystem::path root = parent.empty() ? std::filesystem::temp_directory_path(error) : parent;
    if (error) fail("no folder for temporary files: ", error.message(), "; set TMPDIR");
    make_folder(root);
    std::string name = (root / "gradus-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail_with_errno("cannot make a folder in", root, errno);
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradus::examples
