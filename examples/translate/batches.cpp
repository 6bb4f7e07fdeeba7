#include "gradus/examples/translate/batches.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gradus/core/error.h"
#include "gradus/examples/translate/tokenizer.h"

namespace gradus::examples {

namespace {

// Vigna's SplitMix64. The distributions of <random> differ between standard libraries; these lines do not.
uint64_t next_bits(uint64_t& state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Uniform in [0, limit): draws from the incomplete last block of the 2^64 values are repeated.
uint64_t next_below(uint64_t& state, uint64_t limit) {
    const uint64_t rejected = -limit % limit;
    for (;;) {
        const uint64_t bits = next_bits(state);
        if (bits >= rejected) return bits % limit;
    }
}

template <class T>
void shuffle_with(std::vector<T>& values, uint64_t& state) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[next_below(state, i)]);
}

// Apart for every (seed, epoch), also where seed + epoch are equal.
uint64_t epoch_state(uint64_t seed, uint64_t epoch) {
    uint64_t state = seed;
    state = next_bits(state) ^ epoch;
    return next_bits(state);
}

int64_t length_of(const std::vector<int64_t>& pieces, int64_t marks) {
    return static_cast<int64_t>(pieces.size()) + marks;
}

}  // namespace

void shuffle(std::vector<int64_t>& values, uint64_t seed) {
    uint64_t state = seed;
    shuffle_with(values, state);
}

std::vector<int64_t> frame_source(const std::vector<int64_t>& pieces) {
    std::vector<int64_t> out = pieces;
    out.push_back(eos_id);
    return out;
}

std::vector<int64_t> frame_target(const std::vector<int64_t>& pieces) {
    std::vector<int64_t> out{bos_id};
    out.insert(out.end(), pieces.begin(), pieces.end());
    out.push_back(eos_id);
    return out;
}

Batches::Batches(std::vector<EncodedPair> pairs, BatchOptions options) : pairs_(std::move(pairs)), options_(options) {
    check(options.max_length > 0 && options.pool > 0, "batches: a longest length of ", options.max_length,
          " and a pool of ", options.pool, "; both must be positive");
    check(options.token_budget >= options.max_length, "batches: a budget of ", options.token_budget,
          " tokens does not hold one sentence of the longest length ", options.max_length);
    for (int64_t i = 0; i < static_cast<int64_t>(pairs_.size()); ++i) {
        if (std::max(source_length(i), target_length(i)) <= options.max_length) {
            usable_.push_back(i);
        } else {
            ++left_out_;
        }
    }
}

int64_t Batches::source_length(int64_t index) const { return length_of(pairs_[static_cast<size_t>(index)].source, 1); }
int64_t Batches::target_length(int64_t index) const { return length_of(pairs_[static_cast<size_t>(index)].target, 2); }

std::vector<std::vector<int64_t>> Batches::cut(std::vector<int64_t> order) const {
    // Stable, so that ties keep the order they came in, whatever the library's sort does.
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const auto key = [&](int64_t i) {
            return std::tuple(std::max(source_length(i), target_length(i)), target_length(i), source_length(i));
        };
        return key(a) < key(b);
    });
    std::vector<std::vector<int64_t>> batches;
    int64_t longest = 0;
    for (const int64_t index : order) {
        const int64_t length = std::max(source_length(index), target_length(index));
        const int64_t rows = batches.empty() ? 0 : static_cast<int64_t>(batches.back().size()) + 1;
        if (rows == 0 || rows * std::max(longest, length) > options_.token_budget) {
            batches.emplace_back();
            longest = 0;
        }
        longest = std::max(longest, length);
        batches.back().push_back(index);
    }
    return batches;
}

std::vector<std::vector<int64_t>> Batches::epoch(uint64_t seed, uint64_t epoch) const {
    uint64_t state = epoch_state(seed, epoch);
    std::vector<int64_t> order = usable_;
    shuffle_with(order, state);
    std::vector<std::vector<int64_t>> batches;
    const auto count = static_cast<int64_t>(order.size());
    for (int64_t start = 0; start < count; start += options_.pool) {
        const auto from = order.begin() + start;
        for (auto& batch : cut({from, from + std::min(options_.pool, count - start)}))
            batches.push_back(std::move(batch));
    }
    shuffle_with(batches, state);
    return batches;
}

std::vector<std::vector<int64_t>> Batches::in_order() const { return cut(usable_); }

Batch Batches::batch(const std::vector<int64_t>& indices) const {
    check(!indices.empty(), "batches: a batch of no pairs");
    Batch out;
    out.rows = static_cast<int64_t>(indices.size());
    out.indices = indices;
    for (const int64_t index : indices) {
        check(index >= 0 && index < static_cast<int64_t>(pairs_.size()), "batches: pair ", index, " lies outside [0, ",
              static_cast<int64_t>(pairs_.size()), ")");
        out.source_length = std::max(out.source_length, source_length(index));
        out.target_length = std::max(out.target_length, target_length(index));
    }
    out.source.assign(static_cast<size_t>(out.rows * out.source_length), pad_id);
    out.target.assign(static_cast<size_t>(out.rows * out.target_length), pad_id);
    for (int64_t row = 0; row < out.rows; ++row) {
        const EncodedPair& pair = pairs_[static_cast<size_t>(indices[static_cast<size_t>(row)])];
        const std::vector<int64_t> source = frame_source(pair.source), target = frame_target(pair.target);
        std::copy(source.begin(), source.end(), out.source.begin() + row * out.source_length);
        std::copy(target.begin(), target.end(), out.target.begin() + row * out.target_length);
    }
    return out;
}

}  // namespace gradus::examples
