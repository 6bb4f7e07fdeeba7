#include "gradus/examples/common/png.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"

namespace gradus::examples {

namespace {

void append_big_endian(std::string& out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
    append_big_endian(out, static_cast<uint32_t>(data.size()));
    const size_t start = out.size();
    out += type;
    out += data;
    const auto* bytes = reinterpret_cast<const Bytef*>(out.data() + start);
    append_big_endian(out, static_cast<uint32_t>(crc32_z(crc32_z(0, nullptr, 0), bytes, out.size() - start)));
}

void check_image(const char* what, const Image& image) {
    check(image.channels == 1 || image.channels == 3, what, ": ", image.channels,
          " channels; 1 (grey) and 3 (red, green, blue) are known");
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    check(image.width > 0 && image.height > 0 && image.width <= most && image.height <= most, what, ": the size ",
          image.width, " x ", image.height, " lies outside 1..", most);
    const auto wanted = static_cast<unsigned __int128>(image.width) * static_cast<unsigned __int128>(image.height) *
                        static_cast<unsigned __int128>(image.channels);
    check(wanted == image.pixels.size(), what, ": ", image.pixels.size(), " bytes of pixels for ", image.width, " x ",
          image.height, " x ", image.channels);
}

// PNG's predictor: of left, above and above-left the one nearest to left + above - above-left.
int paeth(int left, int above, int corner) {
    const int guess = left + above - corner;
    const int from_left = std::abs(guess - left), from_above = std::abs(guess - above),
              from_corner = std::abs(guess - corner);
    if (from_left <= from_above && from_left <= from_corner) return left;
    return from_above <= from_corner ? above : corner;
}

std::string filter_row(int filter, const uint8_t* row, const uint8_t* before, size_t count, size_t step) {
    std::string out(1, static_cast<char>(filter));
    for (size_t i = 0; i < count; ++i) {
        const int left = i >= step ? row[i - step] : 0, above = before ? before[i] : 0;
        const int corner = before && i >= step ? before[i - step] : 0;
        const int guesses[] = {0, left, above, (left + above) / 2, paeth(left, above, corner)};
        out += static_cast<char>(row[i] - guesses[filter]);
    }
    return out;
}

int64_t cost(std::string_view row) {
    int64_t sum = 0;
    for (const char c : row.substr(1)) sum += std::abs(static_cast<int>(static_cast<signed char>(c)));
    return sum;
}

}  // namespace

std::string encode_png(const Image& image) {
    check_image("write_png", image);
    const auto step = static_cast<size_t>(image.channels);
    const size_t row_bytes = static_cast<size_t>(image.width) * step;
    std::string raw;
    for (int64_t y = 0; y < image.height; ++y) {
        const uint8_t* row = image.pixels.data() + static_cast<size_t>(y) * row_bytes;
        const uint8_t* before = y > 0 ? row - row_bytes : nullptr;
        std::string best = filter_row(0, row, before, row_bytes, step);
        for (int filter = 1; filter < 5; ++filter) {
            std::string other = filter_row(filter, row, before, row_bytes, step);
            if (cost(other) < cost(best)) best = std::move(other);
        }
        raw += best;
    }
    uLongf packed_size = compressBound(static_cast<uLong>(raw.size()));
    std::string packed(packed_size, '\0');
    const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &packed_size,
                               reinterpret_cast<const Bytef*>(raw.data()), static_cast<uLong>(raw.size()), 9);
    check(code == Z_OK, "write_png: zlib could not compress ", raw.size(), " bytes (code ", code, ")");
    packed.resize(packed_size);
    check(packed.size() <= std::numeric_limits<int32_t>::max(), "write_png: the picture is too large for one chunk");

    std::string header;
    append_big_endian(header, static_cast<uint32_t>(image.width));
    append_big_endian(header, static_cast<uint32_t>(image.height));
    header += static_cast<char>(8);
    header += static_cast<char>(image.channels == 1 ? 0 : 2);
    header.append(3, '\0');
    std::string out = "\x89PNG\r\n\x1a\n";
    append_chunk(out, "IHDR", header);
    append_chunk(out, "IDAT", packed);
    append_chunk(out, "IEND", "");
    return out;
}

void write_png(const std::filesystem::path& path, const Image& image) { write_file(path, encode_png(image)); }

Image image_grid(const std::vector<Image>& tiles, int64_t columns, int64_t gap, uint8_t background) {
    check(!tiles.empty(), "image_grid: there is no tile");
    check(columns > 0 && gap >= 0, "image_grid: ", columns, " columns with a gap of ", gap,
          "; columns must be positive and the gap not negative");
    const Image& first = tiles.front();
    for (const Image& tile : tiles) {
        check_image("image_grid", tile);
        check(tile.width == first.width && tile.height == first.height && tile.channels == first.channels,
              "image_grid: a tile of ", tile.width, " x ", tile.height, " x ", tile.channels, " among tiles of ",
              first.width, " x ", first.height, " x ", first.channels);
    }
    const auto count = static_cast<int64_t>(tiles.size());
    columns = std::min(columns, count);
    const int64_t rows = (count + columns - 1) / columns;
    Image grid{columns * (first.width + gap) + gap, rows * (first.height + gap) + gap, first.channels, {}};
    grid.pixels.assign(static_cast<size_t>(grid.width * grid.height * grid.channels), background);
    const int64_t tile_row = first.width * first.channels;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t left = gap + (i % columns) * (first.width + gap),
                      top = gap + (i / columns) * (first.height + gap);
        const std::vector<uint8_t>& pixels = tiles[static_cast<size_t>(i)].pixels;
        for (int64_t y = 0; y < first.height; ++y) {
            std::copy_n(pixels.begin() + y * tile_row, tile_row,
                        grid.pixels.begin() + ((top + y) * grid.width + left) * grid.channels);
        }
    }
    return grid;
}

Image enlarge(const Image& image, int64_t factor) {
    check_image("enlarge", image);
    check(factor >= 1 && factor <= 64, "enlarge: the factor ", factor, " lies outside 1..64");
    Image out{image.width * factor, image.height * factor, image.channels, {}};
    out.pixels.reserve(static_cast<size_t>(out.width * out.height * out.channels));
    for (int64_t y = 0; y < out.height; ++y) {
        for (int64_t x = 0; x < out.width; ++x) {
            const auto from = image.pixels.begin() + ((y / factor) * image.width + x / factor) * image.channels;
            out.pixels.insert(out.pixels.end(), from, from + image.channels);
        }
    }
    return out;
}

}  // namespace gradus::examples
