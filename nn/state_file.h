// state.json: the plain values of a checkpoint and the checksums of its tensor files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/nn/state.h"

namespace gradus {

struct StateFile {
    Values values;
    std::uint32_t model_checksum = 0, optimizer_checksum = 0;
};

/// {"format": "gradus checkpoint", "format_version": 1, "model_checksum": …, "optimizer_checksum": …,
/// "values_checksum": …, "values": {name: integer, number or text, …}}. Infinite numbers, NaN and invalid UTF-8 are
/// refused.
void save_state_file(const std::filesystem::path& path, const StateFile& state);
/// Throws for whatever is not such a file, whole and unchanged.
StateFile load_state_file(const std::filesystem::path& path);

}  // namespace gradus
