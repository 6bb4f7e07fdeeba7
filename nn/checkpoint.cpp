#include "gradus/nn/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <unordered_map>

#include "gradus/nn/atomic_file.h"
#include "gradus/nn/state_file.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

const std::string prefix = "checkpoint-", saving = ".saving-", removed = ".removed-", alias_key = "alias.";

/// Turns the standard library's file errors into ours.
template <class F>
auto with_files(F&& f) {
    try {
        return f();
    } catch (const fs::filesystem_error& error) {
        fail("checkpoint: ", error.what());
    }
}

/// The number in "checkpoint-000012", or nothing for any other name.
std::optional<std::int64_t> serial_of(const std::string& name) {
    if (name.rfind(prefix, 0) != 0) return {};
    std::int64_t serial = 0;
    const char *begin = name.data() + prefix.size(), *stop = name.data() + name.size();
    const auto [end, error] = std::from_chars(begin, stop, serial);
    if (error != std::errc() || end != stop || serial < 1) return {};
    return serial;
}

std::string name_of(std::int64_t serial) {
    const std::string digits = std::to_string(serial);
    return prefix + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}

/// Names of the published checkpoints, the newest first.
std::vector<std::string> published(const fs::path& folder) {
    std::vector<std::string> names;
    if (!fs::is_directory(folder)) return names;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_directory() && serial_of(entry.path().filename().string()))
            names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return *serial_of(a) > *serial_of(b); });
    return names;
}

void remove_left_over(const fs::path& folder) {
    std::vector<fs::path> left_over;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        const bool pointer = name.rfind(".latest.", 0) == 0 && entry.path().extension() == ".tmp";
        if (name.rfind(saving, 0) == 0 || name.rfind(removed, 0) == 0 || pointer) left_over.push_back(entry.path());
    }
    for (const fs::path& path : left_over) fs::remove_all(path);
}

/// What `latest` says, or the newest where it is missing; empty where there is nothing.
std::string newest(const fs::path& folder) {
    std::ifstream pointer(folder / "latest");
    std::string name;
    if (std::getline(pointer, name)) {
        check(serial_of(name).has_value(), "checkpoint: ", (folder / "latest").string(), " names ", Quoted{name},
              ", which is no checkpoint");
        return name;
    }
    const auto names = published(folder);
    return names.empty() ? "" : names.front();
}

void check_whole(const fs::path& path, std::uint32_t expected, std::uint32_t got) {
    check(expected == got, "checkpoint: ", path.string(),
          " is not the file that was saved with state.json: its checksum differs");
}

}  // namespace

std::uint32_t save_state(const fs::path& path, const NamedTensors& state, Metadata metadata) {
    NamedTensors stored;
    std::unordered_map<std::string, std::string> first;
    for (const auto& [name, tensor] : state) {
        check(tensor.defined(), "checkpoint: ", path.string(), ": tensor ", Quoted{name}, " is undefined");
        const std::string place =
            text(std::int64_t(reinterpret_cast<std::intptr_t>(tensor.address())), " ", tensor.dtype(), " ",
                 tensor.device(), " ", tensor.shape(), " ", tensor.strides());
        const auto [found, is_new] = first.emplace(place, name);
        if (is_new || tensor.numel() == 0)
            stored.emplace_back(name, tensor);
        else
            metadata[alias_key + name] = found->second;
    }
    for (const auto& [name, tensor] : stored)
        check(!metadata.contains(alias_key + name), "checkpoint: ", path.string(), ": ", Quoted{name},
              " appears twice");
    return save_safetensors(path, stored, metadata);
}

Safetensors load_state(const fs::path& path, const SafetensorsOptions& options) {
    Safetensors loaded = load_safetensors(path, options);
    std::unordered_map<std::string, Tensor> stored(loaded.tensors.begin(), loaded.tensors.end());
    for (const auto& [key, target] : loaded.metadata) {
        if (key.rfind(alias_key, 0) != 0) continue;
        const std::string name = key.substr(alias_key.size());
        const auto found = stored.find(target);
        check(found != stored.end(), "checkpoint: ", path.string(), ": ", Quoted{name}, " stands for ", Quoted{target},
              ", which is not in the file");
        check(!stored.contains(name), "checkpoint: ", path.string(), ": ", Quoted{name},
              " is both stored and an alias");
        loaded.tensors.emplace_back(name, found->second);
    }
    return loaded;
}

std::string save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint, int keep) {
    check(keep >= 1, "checkpoint: keep must be 1 or more: got ", keep);
    return with_files([&] {
        fs::create_directories(folder);
        remove_left_over(folder);
        const fs::path hidden = folder / (saving + std::to_string(::getpid()));
        const auto before = published(folder);
        const std::string name = name_of(before.empty() ? 1 : *serial_of(before.front()) + 1);
        try {
            fs::create_directory(hidden);
            StateFile state{checkpoint.values, 0, 0};
            state.model_checksum = save_state(hidden / "model.safetensors", checkpoint.model);
            state.optimizer_checksum = save_state(hidden / "optimizer.safetensors", checkpoint.optimizer);
            save_state_file(hidden / "state.json", state);
            fs::rename(hidden, folder / name);
        } catch (...) {
            std::error_code ignored;
            fs::remove_all(hidden, ignored);
            throw;
        }
        sync_folder(folder);
        AtomicFile latest(folder / "latest");
        latest.write((name + "\n").data(), name.size() + 1);
        latest.commit();
        for (std::size_t i = std::size_t(keep - 1); i < before.size(); ++i) {
            fs::rename(folder / before[i], folder / (removed + before[i]));  // never a half-removed one under its name
            fs::remove_all(folder / (removed + before[i]));
        }
        return name;
    });
}

Checkpoint load_checkpoint(const fs::path& folder, Device device) {
    return with_files([&] {
        check(fs::is_directory(folder), "checkpoint: there is no folder ", folder.string());
        StateFile state = load_state_file(folder / "state.json");
        Checkpoint checkpoint;
        const fs::path model = folder / "model.safetensors", optimizer = folder / "optimizer.safetensors";
        Safetensors loaded = load_state(model, {device, false});
        check_whole(model, state.model_checksum, loaded.checksum);
        checkpoint.model = std::move(loaded.tensors);
        loaded = load_state(optimizer, {device, false});
        check_whole(optimizer, state.optimizer_checksum, loaded.checksum);
        checkpoint.optimizer = std::move(loaded.tensors);
        checkpoint.values = std::move(state.values);
        checkpoint.name = folder.filename().string();
        return checkpoint;
    });
}

Checkpoint load_latest(const fs::path& folder, bool fall_back, Device device) {
    return with_files([&] {
        std::string name, cause;
        try {
            name = newest(folder);
            check(!name.empty(), "checkpoint: there is none in ", folder.string());
            return load_checkpoint(folder / name, device);
        } catch (const Error& error) {
            cause = error.what();
        }
        for (const std::string& earlier : published(folder)) {
            if (earlier == name) continue;
            Checkpoint intact;
            try {
                intact = load_checkpoint(folder / earlier, device);
            } catch (const Error&) {
                continue;
            }
            check(fall_back, cause, ". ", earlier,
                  " in the same folder is intact: load it by name, or allow falling back");
            intact.warning = text(cause, ". Loaded ", earlier, " instead");
            return intact;
        }
        fail(cause, name.empty() ? "" : ". No other checkpoint in the folder is intact");
    });
}

bool has_checkpoint(const fs::path& folder) {
    return with_files([&] { return fs::exists(folder / "latest") || !published(folder).empty(); });
}

}  // namespace gradus
