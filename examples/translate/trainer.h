// Training the translation model: batches, steps, validation, checkpoints; stops and continues bit for bit.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>

#include "gradus/examples/common/jsonl.h"
#include "gradus/examples/translate/batches.h"
#include "gradus/examples/translate/decode.h"
#include "gradus/examples/translate/report.h"
#include "gradus/examples/translate/settings.h"
#include "gradus/nn/checkpoint.h"
#include "gradus/nn/optimizer.h"
#include "gradus/nn/schedule.h"

namespace gradus::examples {

/// Encoded sentences of a part of the corpus.
std::vector<EncodedPair> encode(const std::vector<SentencePair>& pairs, const Tokenizer& source,
                                const Tokenizer& target);

/// Mean negative log-likelihood of a target piece (its eos included), without dropout or smoothing.
double evaluate_loss(const Transformer& model, const Batches& batches);

struct TrainReport {
    bool interrupted = false;
    std::string stopped_by;  ///< "epochs", "steps", "minutes", "validation loss", "interrupt"
    double seconds = 0;      ///< of this session, validation included
    double source_tokens_per_second = 0, target_tokens_per_second = 0;
    double best_loss = 0;
    std::int64_t steps = 0, epochs = 0;
};

class Trainer {
  public:
    /// Continues the newest checkpoint in the folder where settings.resume is set, else starts anew.
    Trainer(const Settings& settings, const Corpus& corpus, const Tokenizer& source, const Tokenizer& target);

    /// Runs until a bound is reached or `stop` is set; the checkpoint is saved in every case.
    TrainReport run(const std::atomic<bool>& stop);

    /// One update; returns the loss a target piece, the gradient's norm before clipping, and the rate it was made with.
    struct StepResult {
        double loss, norm, lr;
        std::int64_t source_tokens, target_tokens;
    };
    StepResult step(const Batch& batch);

    Transformer& model() { return *model_; }
    const History& history() const { return history_; }
    std::int64_t steps() const { return step_; }
    std::int64_t left_out() const { return train_.left_out(); }  ///< training pairs beyond max_length
    std::filesystem::path best_folder() const { return settings_.out / "best"; }

  private:
    void save();
    void resume();
    bool end_of_epoch(class TrainLog& log);
    Checkpoint snapshot() const;

    Settings settings_;
    const Corpus& corpus_;
    const Tokenizer &source_pieces_, &target_pieces_;
    Batches train_, valid_;
    std::vector<std::vector<std::int64_t>> valid_sources_;
    Generator rng_;
    std::unique_ptr<Transformer> model_;
    std::unique_ptr<Adam> optimizer_;
    std::unique_ptr<Schedule> schedule_;
    History history_;
    std::int64_t step_ = 0, epoch_ = 0, next_batch_ = 0;
    double window_loss_ = 0;  ///< summed over the pieces since the last point of the curve
    std::int64_t window_pieces_ = 0;
    std::int64_t data_ = 0;  ///< a checksum of the training pairs
    double best_loss_ = 1e30;
    int epochs_without_gain_ = 0;
};

}  // namespace gradus::examples
