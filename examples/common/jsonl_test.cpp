#include "gradus/examples/common/jsonl.h"

#include <cmath>
#include <limits>

#include "gradus/examples/common/files.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

TEST_CASE("a JSON object is written after RFC 8259", "[examples][jsonl]") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    JsonObject object;
    object.add("step", 3).add("loss", 0.1).add("big", int64_t{9007199254740993}).add("ok", true);
    object.add("nan", std::nan("")).add("inf", -infinity).add("list", std::vector<double>{1.5, infinity, -2});
    CHECK(
        object.text() ==
        R"({"step": 3, "loss": 0.1, "big": 9007199254740993, "ok": true, "nan": null, "inf": null, "list": [1.5, null, -2]})");
    CHECK(JsonObject().text() == "{}");
    CHECK(JsonObject().add("a\"b", "x\\y\n\t\r\x01\x7f").text() == R"({"a\"b": "x\\y\n\t\u000d\u0001\u007f"})");
    CHECK(JsonObject().add("zh", "\xe4\xb8\xad\xff").text() == "{\"zh\": \"\xe4\xb8\xad\xef\xbf\xbd\"}");
    CHECK(JsonObject().add("s", std::string("text")).text() == R"({"s": "text"})");
}

TEST_CASE("JSON lines append, end a broken last line, and start afresh on request", "[examples][jsonl]") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "log" / "a.jsonl";
    JsonLines(file).write(JsonObject().add("i", 1));
    JsonLines(file).write(JsonObject().add("i", 2));
    CHECK(read_file(file) == "{\"i\": 1}\n{\"i\": 2}\n");
    write_file(file, "{\"i\": 1}\n{\"i");
    JsonLines(file).write(JsonObject().add("i", 3));
    CHECK(read_file(file) == "{\"i\": 1}\n{\"i\n{\"i\": 3}\n");
    JsonLines(file, true).write(JsonObject().add("i", 4));
    CHECK(read_file(file) == "{\"i\": 4}\n");
}

TEST_CASE("a JSON log on a full disk or a folder says so", "[examples][jsonl]") {
    const TemporaryFolder folder;
    CHECK(contains(error_of([&] { JsonLines log(folder.path()); }), folder.path().string()));
    const std::string full = error_of([] { JsonLines("/dev/full").write(JsonObject()); });
    CHECK(contains(full, "cannot write /dev/full: No space left on device"));
}
