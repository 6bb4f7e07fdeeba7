// IDX files, the format of MNIST and Fashion-MNIST: a shape and one byte an element.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gradus::examples {

/// An array of bytes in row-major order.
struct IdxData {
    std::vector<int64_t> shape;
    std::vector<uint8_t> bytes;
};

/// Reads an IDX file of unsigned bytes with `rank` dimensions, gzip-compressed or plain. Header, big-endian: 0, 0, type
/// 8, rank, then each dimension in 4 bytes. Throws gradus::Error naming the path when the file is missing, has another
/// type or rank, is cut short, damaged, or longer than its shape says.
IdxData read_idx(const std::filesystem::path& path, int64_t rank);

}  // namespace gradus::examples
