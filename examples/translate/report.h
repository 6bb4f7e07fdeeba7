// What a run leaves to look at: its curves, its samples, and where the model looked.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gradus/examples/translate/corpus.h"
#include "gradus/examples/translate/tokenizer.h"
#include "gradus/nn/seq2seq.h"

namespace gradus::examples {

/// The points of a run's curves.
struct History {
    std::vector<double> step, loss;                          ///< of training, averaged between two points
    std::vector<double> valid_step, valid_loss, valid_bleu;  ///< after each epoch
    std::string text() const;                                ///< as kept in a checkpoint
    static History parse(const std::string& text);           ///< throws gradus::Error on anything else
};

/// Loss (left axis) and BLEU (right axis) over steps, as an SVG file.
void write_curves(const std::filesystem::path& path, const History& history, const std::string& title);

/// The last decoder layer's attention, averaged over heads, from each target piece to each source piece, as an SVG
/// file.
void write_attention(const std::filesystem::path& path, const Transformer& model, const Tokenizer& source_pieces,
                     const Tokenizer& target_pieces, const std::vector<std::int64_t>& source,
                     const std::vector<std::int64_t>& target);

/// "n. source / reference / translation", three lines each.
std::string samples(const std::vector<SentencePair>& pairs, const std::vector<std::string>& translations,
                    std::size_t count);

}  // namespace gradus::examples
