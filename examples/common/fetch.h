// Debian packages as a source of data: downloaded into a cache and unpacked, without root and without installing.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace gradus::examples {

/// Receives one line of news at a time, to show to the user; may be empty.
using Message = std::function<void(const std::string&)>;

/// $XDG_CACHE_HOME/gradus, or $HOME/.cache/gradus. Throws gradus::Error when neither variable is usable.
std::filesystem::path cache_folder();

/// The package's file in `folder`, downloaded by `apt-get download` if it is not there yet; a cached one needs neither
/// network nor apt. If apt does not know the package and we are root, its lists are updated once. A download is
/// complete or absent. Throws gradus::Error, naming the package and what to do, when the name is no package name,
/// apt-get is missing, the network is away, the package is unknown, or the disk is full.
std::filesystem::path fetch_package(const std::string& name, const std::filesystem::path& folder,
                                    const Message& message);

/// Unpacks a .deb file below `folder` by `dpkg -x`; nothing is installed. Throws gradus::Error naming the file and
/// what to do.
void unpack_package(const std::filesystem::path& file, const std::filesystem::path& folder);

/// What apt-get's output means, as the sentence that ends an error text: the cause and the fix.
std::string explain_apt_failure(const std::string& output, bool is_root);

}  // namespace gradus::examples
