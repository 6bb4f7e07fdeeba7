// 8-bit pictures in memory, and PNG files of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradus::examples {

/// Rows of pixels from top to bottom; a pixel is `channels` bytes: 1 = grey, 3 = red, green, blue.
struct Image {
    int64_t width = 0;
    int64_t height = 0;
    int64_t channels = 1;
    std::vector<uint8_t> pixels;  // height * width * channels bytes
};

/// The bytes of a PNG file (8 bits a channel, one zlib stream, rows filtered by the least sum of absolute differences).
/// Throws gradus::Error when the size is not positive, exceeds 2^31 - 1, or does not match the pixels.
std::string encode_png(const Image& image);

/// Writes a PNG file in one rename. Throws gradus::Error naming the path and the system's reason.
void write_png(const std::filesystem::path& path, const Image& image);

/// Tiles of one size set out in rows of `columns`, `gap` pixels of `background` between and around them; the places of
/// an incomplete last row are background. Throws gradus::Error when there is no tile or the tiles differ in size.
Image image_grid(const std::vector<Image>& tiles, int64_t columns, int64_t gap = 2, uint8_t background = 255);

/// Every pixel repeated factor x factor times. Throws gradus::Error for a factor below 1.
Image enlarge(const Image& image, int64_t factor);

}  // namespace gradus::examples
