// A batch cut into shards for the ranks.
#pragma once

#include "gradus/nn/batch.h"

namespace gradus::parallel {

/// Samples [begin, end) of a batch.
struct Share {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
};

/// Part `rank` of n samples in `ranks` parts whose sizes differ by at most one; it may be empty.
inline Share share_of(std::int64_t n, int rank, int ranks) {
    const std::int64_t each = n / ranks, more = n % ranks;
    const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, more);
    return {begin, begin + each + (rank < more)};
}

/// How many samples a batch has: the size of axis 0, which all its tensors share; those without axes belong to every
/// shard.
std::int64_t sample_count(const Batch& batch);

/// These samples of every tensor, on that device.
Batch shard(const Batch& batch, Share share, Device device);

}  // namespace gradus::parallel
