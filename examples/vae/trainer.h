// Training the autoencoder: batches, steps, tests, checkpoints, pictures; stops and continues bit for bit.
#pragma once

#include <atomic>
#include <string>

#include "gradus/examples/common/progress.h"
#include "gradus/examples/vae/report.h"
#include "gradus/examples/vae/settings.h"
#include "gradus/nn/checkpoint.h"
#include "gradus/nn/data.h"
#include "gradus/nn/optimizer.h"

namespace gradus::examples {

struct VaeRun {
    std::string stopped_by;   ///< "epochs", "steps" or "interrupt"
    Terms test;               ///< of the last test; none after an interrupt
    std::int64_t images = 0;  ///< trained on in this session
    double seconds = 0;       ///< in training steps, data included
    double wait_seconds = 0;  ///< of these, waiting for data
    double images_per_second() const { return seconds > 0 ? double(images) / seconds : 0; }
};

class VaeTrainer {
  public:
    /// Continues the newest checkpoint in the run's folder where settings.resume is set, else starts anew. `data` must
    /// outlive the trainer.
    VaeTrainer(const VaeSettings& settings, const Fashion& data);

    /// Runs until a bound is reached or `stop` is set, and shows how far it is; the checkpoint is saved in every case.
    /// Throws gradus::Error, leaving the last checkpoint as it is, when a loss is not finite.
    VaeRun run(const std::atomic<bool>& stop, Progress& progress);

    /// One update by a batch (B, pixels); returns the terms before it.
    Terms step(const Tensor& images);
    /// Of all test pictures, each with one draw; the same draws at every call.
    Terms test() const;

    const VAE& model() const { return model_; }
    const VaeHistory& history() const { return history_; }
    std::int64_t steps() const { return step_; }

  private:
    /// A running average of terms.
    struct Average {
        Terms sum;
        std::int64_t images = 0;
        void add(const Terms& terms, std::int64_t count);
        Terms mean() const { return {sum.reconstruction / double(images), sum.kl / double(images)}; }
        void save(Values& values, const std::string& name) const;
        static Average load(const Values& values, const std::string& name);
    };

    void save() const;
    void resume();
    void write_pictures() const;

    VaeSettings settings_;
    const Fashion& data_;
    Device device_;
    Generator rng_;
    VAE model_;
    Adam optimizer_;
    DataLoader loader_;
    VaeHistory history_;
    Average window_, epoch_;  // since the last point of the curve; since the epoch began
    std::int64_t step_ = 0;
};

}  // namespace gradus::examples
