#include "gradus/examples/common/fetch.h"

#include <unistd.h>

#include "gradus/examples/common/files.h"
#include "gradus/examples/common/process.h"
#include "gradus/examples/common/test_support.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

TEST_CASE("a process gets its arguments unchanged and its end is told", "[examples][process]") {
    const ProcessResult echo = run_process({"printf", "%s|", "a b", "$(id)", "; exit 3", "*"});
    CHECK(echo.exit_code == 0);
    CHECK(echo.output == "a b|$(id)|; exit 3|*|");
    CHECK(run_process({"sh", "-c", "echo out; echo err >&2; exit 7"}).exit_code == 7);
    CHECK(run_process({"sh", "-c", "echo out; echo err >&2; exit 7"}).output == "out\nerr\n");
    CHECK(run_process({"sh", "-c", "kill -TERM $$"}).exit_code == 128 + 15);
    CHECK_FALSE(run_process({"no-such-program-exists"}).found);
    const TemporaryFolder folder;
    CHECK(run_process({"pwd"}, folder.path()).output == fs::canonical(folder.path()).string() + "\n");
    CHECK(contains(error_of([&] { run_process({"pwd"}, folder.path() / "missing"); }), "missing"));
    // More than a pipe holds.
    CHECK(run_process({"sh", "-c",
                       "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; "
                       "i=$((i+1)); done"})
              .output.size() == 3000 * 41);
    CHECK(last_lines("a\n\nb\r\nc  \n", 2) == "b | c");
    CHECK(last_lines("", 2) == "(it printed nothing)");
}

TEST_CASE("the cache folder follows XDG_CACHE_HOME and HOME", "[examples][fetch]") {
    const Variable home("HOME", "/home/someone");
    const Variable cache("XDG_CACHE_HOME", "/var/cache/mine");
    CHECK(cache_folder().string() == "/var/cache/mine/gradus");
    const Variable relative("XDG_CACHE_HOME", "not/absolute");
    CHECK(cache_folder().string() == "/home/someone/.cache/gradus");
    const Variable none("HOME", std::nullopt);
    CHECK(contains(error_of([] { cache_folder(); }), "XDG_CACHE_HOME"));
}

TEST_CASE("a package is downloaded once, past apt's warning", "[examples][fetch]") {
    const TemporaryFolder folder;
    FakePrograms programs;
    programs.add("apt-get", fake_download);
    std::string news;
    const Message message = [&](const std::string& line) { news += line + ";"; };
    const fs::path file = fetch_package("some-data", folder.path() / "deb", message);
    CHECK(file.string() == (folder.path() / "deb" / "some-data_1%3a1.0_all.deb").string());
    CHECK(read_file(file) == "deb\n");
    CHECK(news == "downloading some-data;");
    CHECK(std::distance(fs::directory_iterator(folder.path() / "deb"), {}) == 1);
    // With the file in the cache apt-get is not called: this one would fail.
    programs.add("apt-get", "exit 100\n");
    CHECK(fetch_package("some-data", folder.path() / "deb", message).string() == file.string());
    CHECK(news == "downloading some-data;");
    // "some" is another package, though its name begins the same.
    CHECK(contains(error_of([&] { fetch_package("some", folder.path() / "deb", message); }), "the package some"));
}

TEST_CASE("a failed download is one error that names package and fix, and leaves nothing", "[examples][fetch]") {
    const TemporaryFolder folder;
    FakePrograms programs;
    const auto error = [&] { return error_of([&] { fetch_package("some-data", folder.path(), {}); }); };
    CHECK(contains(error(), "cannot download the package some-data: there is no apt-get"));
    programs.add("apt-get", "echo \"Temporary failure resolving 'deb.example'\"; exit 100\n");
    CHECK(contains(error(), "package some-data: the package server cannot be reached; check the network"));
    programs.add("apt-get", "echo 'E: Unable to locate package some-data'; exit 100\n");
    CHECK(contains(error(), "package some-data: apt does not know it"));
    programs.add("apt-get", "echo 'E: Write error - write (28: No space left on device)'; exit 100\n");
    CHECK(contains(error(), "package some-data: the disk is full"));
    programs.add("apt-get", "echo half > some-data_1_all.deb; kill -INT $$\n");
    CHECK(contains(error(), "package some-data was interrupted by signal 2"));
    programs.add("apt-get", "exit 0\n");
    CHECK(contains(error(), "left no file of the package some-data"));
    CHECK(fs::is_empty(folder.path()));
    for (const char* name : {"", "a", "-o", "../x", "a b", "A_b", "x;y", "a/b"}) {
        CHECK(contains(error_of([&] { fetch_package(name, folder.path(), {}); }), "is no Debian package name"));
    }
}

TEST_CASE("missing package lists are updated by root and explained to others", "[examples][fetch]") {
    CHECK(contains(explain_apt_failure("E: Unable to locate package x", false), "sudo apt-get update"));
    CHECK_FALSE(contains(explain_apt_failure("E: Unable to locate package x", true), "sudo"));
    CHECK(contains(explain_apt_failure("W: Could not resolve 'h'\nE: Unable to locate package x", true), "network"));
    if (::geteuid() != 0) return;
    const TemporaryFolder folder;
    FakePrograms programs;
    const std::string lists = (folder.path() / "lists").string();
    programs.add("apt-get", "case \"$*\" in *update*) echo > '" + lists + "'; exit 0;; esac\n[ -f '" + lists +
                                "' ] || { echo 'E: Unable to locate package some-data'; exit 100; }\n" + fake_download);
    std::string news;
    fetch_package("some-data", folder.path(), [&](const std::string& line) { news += line + ";"; });
    CHECK(news == "downloading some-data;updating apt's package lists;");
}

TEST_CASE("unpacking tells a damaged file from a full disk", "[examples][fetch]") {
    const TemporaryFolder folder;
    FakePrograms programs;
    const fs::path file = folder.path() / "a_1_all.deb";
    const auto error = [&] { return error_of([&] { unpack_package(file, folder.path() / "out"); }); };
    CHECK(contains(error(), "there is no dpkg"));
    programs.add("dpkg", "echo 'dpkg-deb: error: not a Debian format archive'; exit 2\n");
    CHECK(contains(error(), file.string()));
    CHECK(contains(error(), "delete it, then run this again. dpkg said: dpkg-deb: error: not a Debian"));
    programs.add("dpkg", "echo 'tar: x: Cannot write: No space left on device'; exit 2\n");
    CHECK(contains(error(), "the disk is full"));
    programs.add("dpkg", "[ \"$1\" = -x ] && echo content > \"$3/data\"\n");
    unpack_package(file, folder.path() / "out");
    CHECK(read_file(folder.path() / "out" / "data") == "content\n");
}
