// One launch over many arrays: a table of them on the card, each array cut into chunks that blocks take in turn.
#pragma once

#include <cstring>
#include <vector>

#include "gradus/core/transfer.h"
#include "gradus/kernels/device.cuh"

namespace gradus::kernels::cuda {

/// Elements of a chunk: a multiple of what 16 bytes hold, so that chunks of an aligned array are aligned.
inline constexpr std::int64_t chunk_size = 16384;

/// What a kernel sees of the table, by value. A Row has the number of its elements `n` and of its `first_chunk`.
template <class Row>
struct Rows {
    const Row* row;
    int count;
    std::int64_t chunks;

    /// The row that a chunk belongs to: the last one that starts no later (rows without elements come before it).
    __device__ const Row& of(std::int64_t chunk) const {
        int low = 0, high = count;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (row[middle].first_chunk <= chunk ? low : high) = middle;
        }
        return row[low];
    }
};

/// The table in the card's memory, which goes back to the pool after the work that this stream holds by then.
template <class Row>
class Table {
  public:
    Table(std::vector<Row> rows, Device device) {
        std::int64_t chunks = 0;
        for (Row& row : rows) row.first_chunk = chunks, chunks += ceil_div(row.n, chunk_size);
        const auto bytes = std::int64_t(rows.size() * sizeof(Row));
        const Tensor host = Tensor::empty_pinned({bytes}, DType::u8);
        std::memcpy(host.address(), rows.data(), std::size_t(bytes));
        memory_ = Tensor::empty({bytes}, DType::u8, device);
        transfer_async(host, memory_);
        rows_ = {static_cast<const Row*>(memory_.address()), int(rows.size()), chunks};
    }
    const Rows<Row>& rows() const { return rows_; }

  private:
    Tensor memory_;
    Rows<Row> rows_;
};

}  // namespace gradus::kernels::cuda
