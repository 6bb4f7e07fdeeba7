// The header of a safetensors file: reading it with every rule checked, and writing it.
//
// Note [Safetensors]
// A file is: u64 little-endian header length N; N bytes of UTF-8 JSON, an object from tensor names to {dtype, shape,
// data_offsets: [begin, end)}, padded with spaces to a multiple of 8; then the bytes of the tensors, little-endian and
// row-major.
// `__metadata__` maps texts to texts. The reader is stricter than the reference: the header starts with `{`, only
// spaces pad it, no key appears twice, the byte ranges tile the rest of the file without hole or overlap, and each
// range is exactly as long as dtype and shape say. Limits: header 100 000 000 bytes, metadata 16 MiB, rank 8, names
// without NUL, and the sizes above zero of a shape multiply to at most 2^60. Nothing is allocated for tensors before
// all of this holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/core/dtype.h"
#include "gradus/core/layout.h"

namespace gradus {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;  ///< bytes, counted from the end of the header
};

struct SafetensorsHeader {
    std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
    Metadata metadata;
};

inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;
inline constexpr std::uint64_t safetensors_metadata_limit = std::uint64_t(16) << 20;
inline constexpr const char* safetensors_metadata_key = "__metadata__";

/// `file` stands in error texts; `data_bytes` is what the file holds behind the header.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& file);

/// Sorts the entries as the reference does (wide dtypes first, then by name), gives them their ranges and returns the
/// JSON text, padded to a multiple of 8: equal entries give equal bytes. Refuses names and metadata that no reader
/// would accept.
std::string format_safetensors_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata,
                                      const std::string& file);

}  // namespace gradus
