// Translating with a trained model: greedy and beam search over the cached decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/examples/translate/tokenizer.h"
#include "gradus/nn/seq2seq.h"

namespace gradus::examples {

struct DecodeOptions {
    int beam = 5;                 ///< hypotheses kept a sentence; 1 is greedy
    double length_penalty = 1.0;  ///< a hypothesis scores log p / length^penalty
    std::int64_t rows = 160;      ///< hypotheses decoded at once
};

/// The translation of each source (framed piece numbers) as piece numbers without marks, at most 1.5 · source length +
/// 10 of them. `done` is told after each group how many sentences are finished; returning false stops early with those
/// empty.
std::vector<std::vector<std::int64_t>> translate(const Transformer& model,
                                                 const std::vector<std::vector<std::int64_t>>& sources,
                                                 const DecodeOptions& options = {},
                                                 const std::function<bool(std::int64_t)>& done = {});

}  // namespace gradus::examples
