#include "gradus/examples/common/fetch.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/process.h"

namespace gradus::examples {

namespace fs = std::filesystem;

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

bool contains_any(const std::string& text, std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
        if (contains(text, part)) return true;
    }
    return false;
}

bool is_package_name(const std::string& name) {
    if (name.size() < 2) return false;
    for (size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && (i == 0 || (c != '+' && c != '-' && c != '.'))) return false;
    }
    return true;
}

// Of several cached versions the one written last; a package name has no underscore, so the prefix is unambiguous.
fs::path find_package(const std::string& name, const fs::path& folder) {
    fs::path newest;
    fs::file_time_type newest_time{};
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string file = entry.path().filename().string();
        if (!file.starts_with(name + "_") || !file.ends_with(".deb") || !entry.is_regular_file(error)) continue;
        const fs::file_time_type time = entry.last_write_time(error);
        if (newest.empty() || time > newest_time) newest = entry.path(), newest_time = time;
    }
    return newest;
}

ProcessResult apt_get(std::vector<std::string> arguments, const fs::path& folder, bool is_root) {
    std::vector<std::string> command{"apt-get", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"};
    // As root apt would hand the download to a user of its own, who may not write into our folder.
    if (is_root) command.insert(command.end(), {"-o", "APT::Sandbox::User=root"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_process(command, folder);
}

bool lists_may_be_old(const std::string& output) {
    return contains_any(output, {"Unable to locate package", "has no installation candidate", "Can't find a source",
                                 "Can't select candidate version", "No packages found", "404  Not Found"});
}

}  // namespace

fs::path cache_folder() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr && fs::path(cache).is_absolute()) return fs::path(cache) / "gradus";
    const char* home = std::getenv("HOME");
    check(home != nullptr && fs::path(home).is_absolute(),
          "no place for cached data: neither XDG_CACHE_HOME nor HOME is an absolute path; set one of them");
    return fs::path(home) / ".cache" / "gradus";
}

std::string explain_apt_failure(const std::string& output, bool is_root) {
    const std::string said = "apt-get said: " + last_lines(output, 2);
    if (contains_any(output, {"No space left", "enough free space", "Disk quota exceeded"})) {
        return "the disk is full; free some space, or set XDG_CACHE_HOME to another disk. " + said;
    }
    // A missing network also leaves the lists unread, so this comes before "unknown".
    if (contains_any(output,
                     {"Could not resolve", "Temporary failure resolving", "Could not connect", "Connection refused",
                      "Connection timed out", "Network is unreachable", "No route to host", "Unable to connect",
                      "Connection failed", "Cannot initiate the connection"})) {
        return "the package server cannot be reached; check the network (and http_proxy), then run this again. " + said;
    }
    if (lists_may_be_old(output)) {
        return std::string("apt does not know it, or its lists are missing or old; ") +
               (is_root ? "check that Debian's main archive is among apt's sources"
                        : "run `sudo apt-get update`, then run this again") +
               ". " + said;
    }
    return "run `apt-get download` by hand to see why. " + said;
}

fs::path fetch_package(const std::string& name, const fs::path& folder, const Message& message) {
    check(is_package_name(name), "fetch_package: \"", name, "\" is no Debian package name");
    if (const fs::path cached = find_package(name, folder); !cached.empty()) return cached;
    make_folder(folder);
    const TemporaryFolder work(folder);
    const bool is_root = ::geteuid() == 0;
    if (message) message("downloading " + name);
    ProcessResult result = apt_get({"download", name}, work.path(), is_root);
    if (result.exit_code != 0 && is_root && lists_may_be_old(result.output)) {
        if (message) message("updating apt's package lists");
        // `apt-get update` ends well even without network, so its text is kept for the explanation.
        const std::string update = apt_get({"update"}, {}, is_root).output;
        result = apt_get({"download", name}, work.path(), is_root);
        if (result.exit_code != 0) result.output = update + result.output;
    }
    check(
        result.found, "cannot download the package ", name,
        ": there is no apt-get; the data comes from Debian's archive: run this on Debian, or copy the .deb file into ",
        folder.string());
    check(result.exit_code < 128, "the download of the package ", name, " was interrupted by signal ",
          result.exit_code - 128, "; run this again");
    check(result.exit_code == 0, "cannot download the package ", name, ": ",
          explain_apt_failure(result.output, is_root));

    const fs::path file = find_package(name, work.path());
    check(!file.empty(), "apt-get left no file of the package ", name, ": ", last_lines(result.output, 2));
    const fs::path target = folder / file.filename();
    std::error_code error;
    fs::rename(file, target, error);
    check(!error, "cannot move the package ", name, " to ", target.string(), ": ", error.message());
    return target;
}

void unpack_package(const fs::path& file, const fs::path& folder) {
    make_folder(folder);
    const ProcessResult result = run_process({"dpkg", "-x", file.string(), folder.string()});
    check(result.found, "cannot unpack ", file.string(), ": there is no dpkg; run this on Debian");
    check(result.exit_code < 128, "unpacking ", file.string(), " was interrupted by signal ", result.exit_code - 128);
    if (result.exit_code == 0) return;
    const bool full = contains_any(result.output, {"No space left", "Disk quota exceeded"});
    fail("cannot unpack ", file.string(), ": ",
         full ? "the disk is full; free some space, or set XDG_CACHE_HOME to another disk. "
              : "the file may be damaged: delete it, then run this again. ",
         "dpkg said: ", last_lines(result.output, 2));
}

}  // namespace gradus::examples
