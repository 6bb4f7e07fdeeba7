// Whole files: read at once, written so that no half-written one is ever seen, and folders that vanish after use.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gradus::examples {

/// The bytes of a file. Throws gradus::Error naming the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Writes a file beside `path` under a temporary name, then renames it: a reader sees the old or the new file, never a
/// part. Makes missing parent folders. Throws gradus::Error naming the path and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Makes a folder and its parents; throws gradus::Error naming the path and the system's reason.
void make_folder(const std::filesystem::path& path);

/// True if the bytes are well-formed UTF-8 (no overlong form, no surrogate, at most U+10FFFF).
bool is_utf8(std::string_view text);

/// Well-formed UTF-8: every byte that does not belong to a well-formed character becomes U+FFFD.
std::string repair_utf8(std::string_view text);

/// A fresh folder that is removed with all it holds when the object dies.
class TemporaryFolder {
  public:
    /// Makes a folder of an unused name below `parent`; an empty parent means the system's place for such folders.
    explicit TemporaryFolder(const std::filesystem::path& parent = {});
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace gradus::examples
