// A checkpoint: model, optimizer and training state in a folder that one rename publishes.
//
// Note [Checkpoint folders]
// runs/a/checkpoint-000012/{model.safetensors, optimizer.safetensors, state.json}, and runs/a/latest, a text with the
// newest one's name. A checkpoint is written under a hidden name, synced, renamed, and only then named by `latest`, so
// that a kill at any moment leaves the old or the new one, whole. state.json holds the checksums of its two neighbours:
// files of different checkpoints do not pass for one. One process at a time saves to a folder.
#pragma once

#include <filesystem>
#include <string>

#include "gradus/nn/safetensors.h"
#include "gradus/nn/state.h"

namespace gradus {

struct Checkpoint {
    NamedTensors model;      ///< of Module::state_dict
    NamedTensors optimizer;  ///< of Optimizer::state_dict
    Values values;           ///< step, schedule, generators, data position, configuration, ...
    std::string name;        ///< set by loading: checkpoint-000012
    std::string warning;     ///< set by load_latest when it fell back: why the newest was passed over
};

/// Writes the next checkpoint, removes all but the newest `keep`, and returns its name. After an error what was there
/// is there still.
std::string save_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint, int keep = 2);

/// Reads one checkpoint by its own folder (runs/a/checkpoint-000012).
Checkpoint load_checkpoint(const std::filesystem::path& folder, Device device = {});

/// Reads the checkpoint that `latest` names (the newest one where there is no such file). If it is damaged, throws and
/// says which earlier one is intact; with `fall_back` loads that one, the cause in `warning`.
Checkpoint load_latest(const std::filesystem::path& folder, bool fall_back = false, Device device = {});

/// Whether there is anything that load_latest would try.
bool has_checkpoint(const std::filesystem::path& folder);

/// A state dict as one safetensors file. Names that share one tensor (tied weights) are stored once; the others are
/// aliases in the metadata (`alias.<name>`) and share one tensor again after loading. Returns the file's checksum.
std::uint32_t save_state(const std::filesystem::path& path, const NamedTensors& state, Metadata metadata = {});
Safetensors load_state(const std::filesystem::path& path, const SafetensorsOptions& options = {});

}  // namespace gradus
