// Batches of sentence pairs of similar length, each within a budget of tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace gradus::examples {

/// A sentence and its translation as piece numbers, without begin and end marks.
struct EncodedPair {
    std::vector<int64_t> source, target;
};

/// Rectangles of piece numbers, row by row, filled up with pad (0).
struct Batch {
    int64_t rows = 0, source_length = 0, target_length = 0;
    std::vector<int64_t> source;   // rows x source_length: pieces, eos, pad
    std::vector<int64_t> target;   // rows x target_length: bos, pieces, eos, pad
    std::vector<int64_t> indices;  // the pair of each row
};

struct BatchOptions {
    int64_t token_budget = 4096;  // rows * max(source_length, target_length) is at most this
    int64_t max_length = 128;     // of a source or target with its marks; longer pairs are left out
    int64_t pool = 8192;          // pairs that are sorted by length together
};

/// A source as the model reads it: the pieces and eos.
std::vector<int64_t> frame_source(const std::vector<int64_t>& pieces);

/// A target as the model reads it: bos, the pieces, eos.
std::vector<int64_t> frame_target(const std::vector<int64_t>& pieces);

/// The plan of batches over a set of pairs.
class Batches {
  public:
    /// Throws gradus::Error when a limit is not positive or a pair of max_length alone exceeds the budget.
    Batches(std::vector<EncodedPair> pairs, BatchOptions options);

    /// The pairs of each batch of an epoch. Every pair that is not left out is in exactly one. The pairs are shuffled,
    /// cut into pools, sorted by length within each, cut into batches, and the batches are shuffled; the result depends
    /// on (seed, epoch) alone, on every machine.
    std::vector<std::vector<int64_t>> epoch(uint64_t seed, uint64_t epoch) const;

    /// The pairs of each batch from the shortest to the longest, for evaluation.
    std::vector<std::vector<int64_t>> in_order() const;

    /// Lays pairs out as a batch. Throws gradus::Error for an empty list or an index out of range.
    Batch batch(const std::vector<int64_t>& indices) const;

    int64_t size() const { return static_cast<int64_t>(usable_.size()); }  ///< pairs in an epoch
    int64_t left_out() const { return left_out_; }                         ///< pairs beyond max_length

  private:
    std::vector<std::vector<int64_t>> cut(std::vector<int64_t> order) const;
    int64_t source_length(int64_t index) const;
    int64_t target_length(int64_t index) const;

    std::vector<EncodedPair> pairs_;
    BatchOptions options_;
    std::vector<int64_t> usable_;
    int64_t left_out_ = 0;
};

/// A permutation of `values` that depends on the seed alone, on every machine (Fisher-Yates over SplitMix64).
void shuffle(std::vector<int64_t>& values, uint64_t seed);

}  // namespace gradus::examples
