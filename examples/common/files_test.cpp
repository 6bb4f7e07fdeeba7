#include "gradus/examples/common/files.h"

#include <sys/stat.h>

#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

TEST_CASE("a file comes back as it was written, and nothing else is left beside it", "[examples][files]") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "deep" / "er" / "a.bin";
    const std::string bytes("a\0b\n\xff", 5);
    write_file(file, "first");
    write_file(file, bytes);
    CHECK(read_file(file) == bytes);
    CHECK(std::distance(fs::directory_iterator(file.parent_path()), {}) == 1);
    struct stat state {};
    REQUIRE(::stat(file.c_str(), &state) == 0);
    const mode_t mask = ::umask(0);
    ::umask(mask);
    CHECK((state.st_mode & 0777) == (0666 & ~mask));
}

TEST_CASE("a failing file names its path and the reason", "[examples][files]") {
    const TemporaryFolder folder;
    const std::string missing = error_of([&] { read_file(folder.path() / "nowhere"); });
    CHECK(contains(missing, (folder.path() / "nowhere").string()));
    CHECK(contains(missing, "No such file or directory (errno 2)"));
    CHECK(contains(error_of([&] { read_file(folder.path()); }), "Is a directory"));
    // A folder in the file's place: the old content stays and no temporary file remains.
    fs::create_directories(folder.path() / "taken" / "x");
    CHECK(contains(error_of([&] { write_file(folder.path() / "taken", "y"); }), "cannot write"));
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
    CHECK(contains(error_of([] { write_file("/dev/full/x", "y"); }), "/dev/full"));
}

TEST_CASE("a temporary folder goes with what it holds", "[examples][files]") {
    fs::path path;
    {
        const TemporaryFolder folder;
        path = folder.path();
        write_file(path / "a" / "b", "c");
        CHECK(fs::exists(path / "a" / "b"));
    }
    CHECK_FALSE(fs::exists(path));
}

TEST_CASE("UTF-8 is checked and repaired", "[examples][files]") {
    CHECK(is_utf8(""));
    CHECK(is_utf8("a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"));
    // Stray continuation, cut, overlong, surrogate, beyond U+10FFFF: after the table of well-formed sequences in
    // Unicode.
    for (const char* bad : {"\x80", "\xe4\xb8", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
        CHECK_FALSE(is_utf8(bad));
        CHECK(is_utf8(repair_utf8(bad)));
    }
    CHECK(repair_utf8("a\xffz\xe4\xb8\xad") == "a\xef\xbf\xbdz\xe4\xb8\xad");
    CHECK(is_utf8("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"));
}
