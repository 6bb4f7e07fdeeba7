#include "gradus/nn/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "gradus/core/error.h"

namespace gradus {
namespace {

[[noreturn]] void fail_errno(const char* what, const std::filesystem::path& path) {
    fail("file: ", what, " ", path.string(), ": ", std::strerror(errno));
}

/// Eight tables: entry [k][b] is the remainder of byte b followed by k zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> crc_tables() {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t remainder = byte;
        for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82F63B78u : 0);
        tables[0][byte] = remainder;
    }
    for (int k = 1; k < 8; ++k)
        for (int byte = 0; byte < 256; ++byte)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
    return tables;
}
constexpr auto tables = crc_tables();

}  // namespace

static_assert(std::endian::native == std::endian::little, "checkpoints are written as memory holds them");

std::uint32_t crc32c(const void* bytes, std::size_t count, std::uint32_t before) {
    const auto* p = static_cast<const unsigned char*>(bytes);
    std::uint32_t crc = ~before;
    for (; count >= 8; count -= 8, p += 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; ++k) crc ^= tables[std::size_t(7 - k)][word >> (8 * k) & 255];
    }
    for (; count > 0; --count, ++p) crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
    return ~crc;
}

std::uint32_t file_checksum(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail_errno("cannot open", path);
    std::vector<char> buffer(1 << 18);
    std::uint32_t crc = 0;
    for (;;) {
        const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const int cause = errno;
            ::close(descriptor);
            errno = cause;
            fail_errno("cannot read", path);
        }
        if (got == 0) break;
        crc = crc32c(buffer.data(), std::size_t(got), crc);
    }
    ::close(descriptor);
    return crc;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(path, ignored)) path_ = std::filesystem::weakly_canonical(path, ignored);
    static std::atomic<unsigned> count = 0;
    temporary_ = path_.parent_path() / ("." + path_.filename().string() + "." + std::to_string(::getpid()) + "-" +
                                        std::to_string(count.fetch_add(1)) + ".tmp");
    struct stat old {};
    const bool replaces = ::stat(path_.c_str(), &old) == 0;
    check(!replaces || S_ISREG(old.st_mode), "file: ", path_.string(), " is not a regular file: choose another name");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail_errno("cannot create", temporary_);
    if (replaces && ::fchmod(descriptor_, old.st_mode & 07777) != 0) {
        const int cause = errno;
        remove_temporary();
        errno = cause;
        fail_errno("cannot set the mode of", temporary_);
    }
}

AtomicFile::~AtomicFile() { remove_temporary(); }

void AtomicFile::remove_temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
}

void AtomicFile::write(const void* bytes, std::size_t count) {
    checksum_ = crc32c(bytes, count, checksum_);
    for (const char* p = static_cast<const char*>(bytes); count > 0;) {
        const ssize_t written = ::write(descriptor_, p, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_errno("cannot write", path_);
        p += written;
        count -= std::size_t(written);
    }
}

void AtomicFile::commit() {
    if (::fsync(descriptor_) != 0) fail_errno("cannot sync", path_);
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) fail_errno("cannot close", path_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot rename to", path_);
    temporary_.clear();
    sync_folder(path_.parent_path());
}

void sync_folder(const std::filesystem::path& folder) {
    const std::filesystem::path place = folder.empty() ? std::filesystem::path(".") : folder;
    const int descriptor = ::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail_errno("cannot open the folder", place);
    // Some file systems cannot sync a folder; there a rename is as durable as it gets.
    const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
    const int cause = errno;
    ::close(descriptor);
    errno = cause;
    if (!synced) fail_errno("cannot sync the folder", place);
}

}  // namespace gradus
