// What the tests of the examples share: environment variables that are put back, and programs that stand in for others.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "gradus/examples/common/files.h"

namespace gradus::examples {

/// Sets (or with no value unsets) a variable while it lives.
class Variable {
  public:
    Variable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
        if (const char* old = std::getenv(name_.c_str())) old_ = old;
        set(value);
    }
    ~Variable() { set(old_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    void set(const std::optional<std::string>& value) {
        if (value) {
            ::setenv(name_.c_str(), value->c_str(), 1);
        } else {
            ::unsetenv(name_.c_str());
        }
    }

    std::string name_;
    std::optional<std::string> old_;
};

/// While it lives PATH is one folder, which holds only the shell scripts that were added: no test meets the network.
class FakePrograms {
  public:
    FakePrograms() : path_("PATH", folder_.path().string()) {}
    void add(const std::string& name, const std::string& script) {
        write_file(folder_.path() / name, "#!/bin/sh\n" + script);
        std::filesystem::permissions(folder_.path() / name, std::filesystem::perms::owner_all);
    }

  private:
    TemporaryFolder folder_;
    Variable path_;
};

/// A script for apt-get that "downloads" the package named after the word download, with apt's warning to root.
inline const std::string fake_download = R"(while [ "$1" != download ]; do [ $# = 0 ] && exit 0; shift; done
echo deb > "$2_1%3a1.0_all.deb"
echo 'W: Download is performed unsandboxed as root' >&2
)";

}  // namespace gradus::examples
