// What a run of the translation example is: its options, and what of them a checkpoint keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gradus/examples/translate/corpus.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/nn/state.h"

namespace gradus::examples {

struct Settings {
    CorpusKind corpus = CorpusKind::small;
    std::filesystem::path out;  ///< the run's folder; empty: runs/translate-<corpus>
    std::string device = "cpu";
    std::uint64_t seed = 1;
    std::int64_t vocabulary = 8000;  ///< pieces of each language

    std::int64_t layers = 3, d_model = 256, heads = 8, hidden = 512;
    double dropout = 0.1;

    double lr = 1e-3;  ///< the peak, reached after `warm_up` steps; falls with 1/√step from there
    std::int64_t warm_up = 400;
    double clip = 1.0;  ///< of the gradient's norm
    double label_smoothing = 0.1;
    std::int64_t batch_tokens = 0;  ///< 0: 1024 for the small corpus, 2048 for the full one
    std::int64_t max_length = 80;   ///< in pieces; longer pairs are not trained on

    std::int64_t epochs = 0;  ///< 0: 6 for the small corpus, 60 for the full one
    std::int64_t steps = 0;   ///< 0: no bound
    double minutes = 0;       ///< of training; 0: no bound
    int patience =
        0;  ///< epochs without a better validation loss before training stops; 0: 3 with --corpus full, else none
    std::int64_t save_every = 500;  ///< steps between checkpoints
    int beam = 5;
    std::int64_t test_sentences = 0;  ///< 0: the whole test set
    bool resume = false;

    std::int64_t epoch_limit() const { return epochs > 0 ? epochs : corpus == CorpusKind::small ? 6 : 60; }
    std::int64_t tokens_a_batch() const {
        return batch_tokens > 0 ? batch_tokens : corpus == CorpusKind::small ? 1024 : 2048;
    }
    int patience_limit() const { return patience > 0 ? patience : corpus == CorpusKind::full ? 3 : 1 << 20; }
};

/// Throws gradus::Error naming the option whose value makes no sense.
void check_settings(const Settings& settings);

TransformerOptions model_options(const Settings& settings, std::int64_t source_pieces, std::int64_t target_pieces);

/// Everything that decides the numbers of a run, under "run." and "model.".
void put_settings(Values& values, const Settings& settings, const TransformerOptions& model);
/// The model's options as a checkpoint holds them.
TransformerOptions model_options_at(const Values& values);
/// Throws gradus::Error, naming each difference, unless a run with these settings continues the checkpoint bit for bit.
void check_same_run(const Values& checkpoint, const Settings& settings, const TransformerOptions& model);

}  // namespace gradus::examples
