// What a run of the autoencoder example is: its options, and what of them a checkpoint keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gradus/nn/state.h"

namespace gradus::examples {

struct VaeSettings {
    std::filesystem::path out = "runs/vae";  ///< the run's folder
    std::filesystem::path data;              ///< the pictures' folder; empty: Debian's package
    std::string device = "cpu";
    std::uint64_t seed = 1;
    std::int64_t hidden = 400, latent = 20;
    double lr = 1e-3;
    std::int64_t batch = 128;
    std::int64_t epochs = 12;
    std::int64_t steps = 0;  ///< 0: no bound
    bool resume = false;
};

/// Throws gradus::Error naming the option whose value makes no sense.
void check_settings(const VaeSettings& settings);

/// Everything that decides the numbers of a run, under "run.".
void put_settings(Values& values, const VaeSettings& settings);
/// Throws gradus::Error, naming each difference, unless a run with these settings continues the checkpoint bit for bit.
void check_same_run(const Values& checkpoint, const VaeSettings& settings);

}  // namespace gradus::examples
