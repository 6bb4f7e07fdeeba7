#include "gradus/examples/common/png.h"

#include <zlib.h>

#include <cstdlib>
#include <string>

#include "gradus/examples/common/files.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

uint32_t big_endian(const std::string& bytes, size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
    return value;
}

// Reads what the writer may write, after the PNG specification; checks every length and checksum on the way.
Image decode(const std::string& png) {
    REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
    std::string packed, order;
    Image image;
    for (size_t at = 8; at < png.size();) {
        const uint32_t length = big_endian(png, at);
        const std::string type = png.substr(at + 4, 4), data = png.substr(at + 8, length);
        const std::string checked = type + data;
        REQUIRE(crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())) ==
                big_endian(png, at + 8 + length));
        order += type + " ";
        if (type == "IHDR") {
            REQUIRE(data.size() == 13);
            image.width = big_endian(data, 0);
            image.height = big_endian(data, 4);
            image.channels = data[9] == 0 ? 1 : 3;
            CHECK(data.substr(8) == std::string("\x08", 1) + (data[9] == 0 ? '\0' : '\2') + std::string(3, '\0'));
        }
        if (type == "IDAT") packed += data;
        at += 12 + length;
    }
    REQUIRE(order == "IHDR IDAT IEND ");
    const auto step = static_cast<size_t>(image.channels), row = static_cast<size_t>(image.width) * step;
    std::vector<uint8_t> raw((row + 1) * static_cast<size_t>(image.height));
    uLongf size = raw.size();
    REQUIRE(uncompress(raw.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK);
    REQUIRE(size == raw.size());
    image.pixels.resize(row * static_cast<size_t>(image.height));
    for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
        for (size_t x = 0; x < row; ++x) {
            const int left = x >= step ? image.pixels[y * row + x - step] : 0;
            const int up = y > 0 ? image.pixels[(y - 1) * row + x] : 0;
            const int corner = x >= step && y > 0 ? image.pixels[(y - 1) * row + x - step] : 0;
            const int p = left + up - corner;
            const int a = std::abs(p - left), b = std::abs(p - up), c = std::abs(p - corner);
            const int paeth = a <= b && a <= c ? left : b <= c ? up : corner;
            const int guesses[] = {0, left, up, (left + up) / 2, paeth};
            REQUIRE(raw[y * (row + 1)] < 5);
            image.pixels[y * row + x] = static_cast<uint8_t>(raw[y * (row + 1) + 1 + x] + guesses[raw[y * (row + 1)]]);
        }
    }
    return image;
}

Image pattern(int64_t width, int64_t height, int64_t channels) {
    Image image{width, height, channels, {}};
    for (int64_t i = 0; i < width * height * channels; ++i) {
        image.pixels.push_back(static_cast<uint8_t>(i < width * channels ? i * 3 : (i * i * 7) >> 3));
    }
    return image;
}

}  // namespace

TEST_CASE("a PNG holds the pixels it was made of", "[examples][png]") {
    for (const int64_t channels : {1, 3}) {
        for (const int64_t width : {1, 2, 31, 300}) {
            const Image image = pattern(width, 17, channels);
            const Image back = decode(encode_png(image));
            CHECK(back.width == image.width);
            CHECK(back.height == image.height);
            CHECK(back.channels == image.channels);
            CHECK(back.pixels == image.pixels);
        }
    }
}

TEST_CASE("a PNG is refused for a bad picture or place", "[examples][png]") {
    const std::string size = error_of([] { encode_png({3, 2, 1, std::vector<uint8_t>(5)}); });
    CHECK(contains(size, "5 bytes of pixels for 3 x 2 x 1"));
    CHECK(contains(error_of([] { encode_png({0, 2, 1, {}}); }), "0 x 2"));
    CHECK(contains(error_of([] { encode_png({1, 1, 2, {0, 0}}); }), "2 channels"));
    const TemporaryFolder folder;
    write_file(folder.path() / "file", "x");
    const std::string place = error_of([&] { write_png(folder.path() / "file" / "a.png", pattern(2, 2, 1)); });
    CHECK(contains(place, (folder.path() / "file").string()));
    CHECK(contains(place, "errno"));
    write_png(folder.path() / "new" / "a.png", pattern(2, 2, 3));
    CHECK(decode(read_file(folder.path() / "new" / "a.png")).pixels == pattern(2, 2, 3).pixels);
}

TEST_CASE("a grid sets tiles out with gaps", "[examples][png]") {
    const Image a{2, 1, 1, {1, 2}}, b{2, 1, 1, {3, 4}}, c{2, 1, 1, {5, 6}};
    const Image grid = image_grid({a, b, c}, 2, 1, 9);
    CHECK(grid.width == 7);
    CHECK(grid.height == 5);
    CHECK(grid.pixels == std::vector<uint8_t>{9, 9, 9, 9, 9, 9, 9,  //
                                              9, 1, 2, 9, 3, 4, 9,  //
                                              9, 9, 9, 9, 9, 9, 9,  //
                                              9, 5, 6, 9, 9, 9, 9,  //
                                              9, 9, 9, 9, 9, 9, 9});
    CHECK(image_grid({a}, 8, 0).pixels == a.pixels);
    const Image colour{1, 1, 3, {1, 2, 3}};
    CHECK(image_grid({colour, colour}, 2, 0).pixels == std::vector<uint8_t>{1, 2, 3, 1, 2, 3});
    CHECK(enlarge(a, 2).pixels == std::vector<uint8_t>{1, 1, 2, 2, 1, 1, 2, 2});
    CHECK(contains(error_of([&] { image_grid({a, colour}, 2); }), "a tile of 1 x 1 x 3 among tiles of 2 x 1 x 1"));
    CHECK(contains(error_of([] { image_grid({}, 2); }), "no tile"));
    CHECK(contains(error_of([&] { image_grid({a}, 0); }), "0 columns"));
}
