#include "gradus/examples/vae/idx.h"

#include <zlib.h>

#include <string>

#include "gradus/examples/common/files.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

namespace {

void write_gzip(const fs::path& path, const std::string& bytes) {
    gzFile file = gzopen(path.c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
}

// Two pictures of 2 x 3 with the bytes 0..11.
std::string pictures() {
    std::string bytes("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\3", 16);
    for (char c = 0; c < 12; ++c) bytes += c;
    return bytes;
}

}  // namespace

TEST_CASE("an IDX file gives shape and bytes, compressed or not", "[examples][idx]") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "a-idx3-ubyte.gz";
    for (const bool compressed : {true, false}) {
        if (compressed) {
            write_gzip(file, pictures());
        } else {
            write_file(file, pictures());
        }
        const IdxData data = read_idx(file, 3);
        CHECK(data.shape == std::vector<int64_t>{2, 2, 3});
        REQUIRE(data.bytes.size() == 12);
        for (size_t i = 0; i < 12; ++i) CHECK(data.bytes[i] == i);
    }
    write_gzip(file, std::string("\0\0\x08\x01\0\0\0\0", 8));
    CHECK(read_idx(file, 1).bytes.empty());
    // More than one piece of the reader's.
    std::string large("\0\0\x08\x01\0\x50\0\0", 8);
    large.resize(8 + 0x500000, '\x7f');
    large.back() = '\x01';
    write_gzip(file, large);
    CHECK(read_idx(file, 1).bytes.size() == 0x500000);
    CHECK(read_idx(file, 1).bytes.back() == 1);
}

TEST_CASE("a bad IDX file is one error that names it", "[examples][idx]") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "b.gz";
    const auto error = [&](int64_t rank) {
        const std::string text = error_of([&] { read_idx(file, rank); });
        CHECK(contains(text, file.string()));
        return text;
    };
    CHECK(contains(error(3), "No such file"));
    write_gzip(file, pictures());
    CHECK(contains(error(1), "begins with 0 0 8 3 instead of 0 0 8 1"));
    write_gzip(file, "GIF89a, no IDX file at all");
    CHECK(contains(error(3), "begins with 71 73 70 56"));
    write_gzip(file, pictures().substr(0, 20));
    CHECK(contains(error(3), "is cut short: 4 bytes of the 12"));
    write_gzip(file, pictures().substr(0, 9));
    CHECK(contains(error(3), "within its header"));
    write_gzip(file, "");
    CHECK(contains(error(3), "within its header"));
    write_gzip(file, pictures() + "x");
    CHECK(contains(error(3), "more bytes than the 12"));
    write_gzip(file, std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16));
    CHECK(contains(error(3), "too large to be true"));
    // 2^32 - 1 bytes announced, one there: no such memory may be taken.
    write_gzip(file, std::string("\0\0\x08\x01\xff\xff\xff\xff\x01", 9));
    CHECK(contains(error(1), "cut short"));
}

TEST_CASE("a damaged or cut gzip stream is told", "[examples][idx]") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "c.gz";
    std::string body("\0\0\x08\x01\0\0\x10\0", 8);
    for (int i = 0; i < 4096; ++i) body += static_cast<char>((i * i) >> 4);
    write_gzip(file, body);
    const std::string whole = read_file(file);
    write_file(file, whole.substr(0, whole.size() / 2));
    CHECK(contains(error_of([&] { read_idx(file, 1); }), "cut short"));
    std::string damaged = whole;
    damaged[damaged.size() - 6] ^= 1;  // the checksum
    write_file(file, damaged);
    CHECK(contains(error_of([&] { read_idx(file, 1); }), "damaged"));
    CHECK(contains(error_of([&] { read_idx(folder.path(), 1); }), folder.path().string()));
}
