// Sums of gradients over the ranks of a group, bucket by bucket, while backward goes on.
#pragma once

#include <memory>

#include "gradus/nn/state.h"
#include "gradus/parallel/communicator.h"

namespace gradus::parallel {

struct ReducerOptions {
    std::int64_t first_bucket_bytes = std::int64_t(1) << 20;  ///< small, so that the first sum starts early
    std::int64_t bucket_bytes = std::int64_t(8) << 20;        ///< of those after it; a larger parameter has its own
};

/// Gradients are gathered in buckets in the reverse order of the parameters, in which backward yields them. A bucket
/// whose gradients are whole is summed over the ranks in a thread of its own; buckets start in their order, so that
/// ranks agree. A parameter that has a gradient on some rank counts as zero on the others; one that has none anywhere
/// stays without. Frozen parameters are not listed. Every rank lists the same parameters.
class GradientReducer {
  public:
    GradientReducer(const NamedTensors& parameters, Communicator& group, const ReducerOptions& options = {});
    ~GradientReducer();
    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    /// From now on gradients that backward completes join their buckets. A backward without start() adds up locally,
    /// and the sum of what was added up goes out with the next one that has it.
    void start();
    /// Waits for the sums of all buckets to be given out and puts them in place of the gradients. Throws what went
    /// wrong in the group.
    void finish();

    std::size_t bucket_count() const;

  private:
    struct State;
    std::shared_ptr<State> state_;  // the parameters' hooks hold it too
};

}  // namespace gradus::parallel
