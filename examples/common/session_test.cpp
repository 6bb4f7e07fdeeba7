#include "gradus/examples/common/session.h"

#include "gradus/examples/common/files.h"
#include "gradus/tests/support.h"

namespace gradus::examples {

using gradus::tests::contains;
using gradus::tests::error_of;

TEST_CASE("an earlier run moves aside, anything else is left alone", "[session]") {
    const TemporaryFolder folder;
    const auto out = folder.path() / "run";
    make_room("toy", out);  // nothing there
    CHECK_FALSE(std::filesystem::exists(out));
    for (const char* kept : {"run-1", "run-2"}) {
        write_file(out / "log.jsonl", kept);
        make_room("toy", out);
        CHECK_FALSE(std::filesystem::exists(out));
        CHECK(read_file(folder.path() / kept / "log.jsonl") == kept);
    }
    write_file(out / "letters.txt", "mine");
    CHECK(contains(error_of([&] { make_room("toy", out); }), "exists and holds no run: choose another --out"));
    CHECK(read_file(out / "letters.txt") == "mine");
}

TEST_CASE("a seed is a whole number of 64 bits", "[session]") {
    CHECK(check_seed("0").empty());
    CHECK(check_seed("18446744073709551615").empty());
    for (const char* bad : {"-1", "18446744073709551616", "1.5", "one", ""})
        CHECK(check_seed(bad) == std::string("must be a whole number from 0 to 2^64 - 1: got '") + bad + "'");
}

}  // namespace gradus::examples
