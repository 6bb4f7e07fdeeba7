// A file that appears whole or not at all: written beside its place, synced, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradus {

/// Bytes go to a temporary file in the same folder; commit() makes it durable and puts it in place with the mode of the
/// file that stood there before. Without commit() the temporary goes and the old file stays. Errors name the path and
/// the cause.
class AtomicFile {
  public:
    explicit AtomicFile(const std::filesystem::path& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* bytes, std::size_t count);
    void commit();
    std::uint32_t checksum() const { return checksum_; }  ///< CRC-32C of everything written

  private:
    void remove_temporary();
    std::filesystem::path path_, temporary_;
    int descriptor_ = -1;
    std::uint32_t checksum_ = 0;
};

/// CRC-32C (Castagnoli), continued from `before`: the checksum of "123456789" is 0xE3069283.
std::uint32_t crc32c(const void* bytes, std::size_t count, std::uint32_t before = 0);
/// CRC-32C of a whole file.
std::uint32_t file_checksum(const std::filesystem::path& path);

/// Makes a folder's entries (renames, new files) durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace gradus
