// The positions of an index tensor sorted by the value they hold, equal ones in order: a stable radix sort on the card.
#pragma once

#include "gradus/core/tensor.h"

namespace gradus::kernels::cuda {

/// order[starts[j]] … order[starts[j + 1] - 1] are the positions where the index is j, in order.
struct SortedPositions {
    /// index: contiguous i64 with values in [0, bound).
    SortedPositions(const Tensor& index, std::int64_t bound);
    Tensor starts;  // i64 (bound + 1)
    Tensor order;   // i64 (n)
};

}  // namespace gradus::kernels::cuda
