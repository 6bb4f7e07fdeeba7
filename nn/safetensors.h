// Tensors in a safetensors file: a strict reader and an atomic writer.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/nn/safetensors_header.h"
#include "gradus/nn/state.h"

namespace gradus {

struct Safetensors {
    NamedTensors tensors;  ///< in the order of the file's bytes
    Metadata metadata;
    std::uint32_t checksum = 0;  ///< CRC-32C of the whole file
};

struct SafetensorsOptions {
    Device device = {};         ///< where the tensors go
    bool check_finite = false;  ///< a NaN or Inf in a floating tensor is an error
};

/// Reads a whole file; Note [Safetensors] says which files are refused. Errors name the file, the tensor and the values
/// at fault; no tensor is allocated before the header has passed. The file is read, not mapped: one that shrinks
/// meanwhile is an error.
Safetensors load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options = {});
/// The header alone: names, dtypes, shapes.
SafetensorsHeader load_safetensors_header(const std::filesystem::path& path);

/// Writes the tensors' logical values, whatever their strides, and returns the file's CRC-32C. Equal input gives equal
/// bytes. An older file of that name stays until the new one is complete and durable, then the new one takes its place
/// and mode.
std::uint32_t save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const Metadata& metadata = {});

}  // namespace gradus
