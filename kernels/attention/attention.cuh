// What the attention kernels share: the operands by pointer and stride, and what hides or drops a score.
//
// Note [Attention on a card]
// A block owns up to 64 queries (or, for the gradients of keys and values, 64 keys) of one head and walks over the
// others tile by tile; nothing of size T x S is stored. The backward pass computes the scores again from the log-sums
// and draws dropout's numbers again. Every sum has one owner and one order. Tiles are compiled for 32, 64 and 128
// features. More are worked on part by part: a score adds up over the parts, and each part of a result has a block of
// its own, which computes the scores again.
#pragma once

#include "gradus/kernels/attention.h"
#include "gradus/kernels/attention/tile.cuh"
#include "gradus/kernels/dropout.h"

namespace gradus::kernels::cuda {

/// A (B, H, T, S) tensor of any strides, or none.
template <class T>
struct Scores {
    const T* data = nullptr;
    std::int64_t strides[4] = {};

    explicit Scores(const Tensor& x) {
        if (!x.defined()) return;
        data = static_cast<const T*>(x.address());
        for (int i = 0; i < 4; ++i) strides[i] = x.strides()[i];
    }
};

template <class T>
struct Operands {
    using A = Wide<T>;
    Heads<const T> q, k, v;
    Scores<std::uint8_t> mask;
    Scores<T> additive;
    std::int64_t H;
    int queries, keys, D, E;
    bool causal, drops;
    A scale, kept_scale;      // kept_scale: 1 / (1 - p)
    std::uint32_t threshold;  // of dropout's 16-bit lanes
    Draw draw;
    std::int64_t per_sample;  // batches of a sample

    explicit Operands(const Attention& a)
        : q(a.q),
          k(a.k),
          v(a.v),
          mask(a.mask),
          additive(a.additive),
          H(a.q.size(1)),
          queries(int(a.q.size(2))),
          keys(int(a.k.size(2))),
          D(int(a.q.size(3))),
          E(int(a.v.size(3))),
          causal(a.causal),
          drops(a.dropout > 0),
          scale(A(a.scale)),
          kept_scale(A(dropout_scale(a.dropout))),
          threshold(dropout_threshold(a.dropout)),
          draw(a.draw),
          per_sample(a.draw.samples == 0 ? a.q.size(0) : a.q.size(0) / a.draw.samples) {
        for (const Tensor& x : {a.q, a.k, a.v})  // numbers within a head have 32 bits
            check(x.size(2) <= 1 << 30 && x.size(3) <= 1 << 30,
                  "scaled_dot_product_attention: a head of more than 2^30 rows or features is too large for a card: "
                  "got the shape ",
                  x.shape(), ", cut it into parts");
    }
};

/// What the queries of one head may see.
template <class T>
struct Sight {
    using A = Wide<T>;
    const std::uint8_t* seen;
    const T* added;
    std::int64_t seen_query, seen_key, added_query, added_key;
    int queries, keys;
    bool causal;

    __device__ Sight(const Operands<T>& o, std::int64_t b, std::int64_t h)
        : seen(o.mask.data ? o.mask.data + b * o.mask.strides[0] + h * o.mask.strides[1] : nullptr),
          added(o.additive.data ? o.additive.data + b * o.additive.strides[0] + h * o.additive.strides[1] : nullptr),
          seen_query(o.mask.strides[2]),
          seen_key(o.mask.strides[3]),
          added_query(o.additive.strides[2]),
          added_key(o.additive.strides[3]),
          queries(o.queries),
          keys(o.keys),
          causal(o.causal) {}

    /// The last key that a query may see lies so far ahead of the query's own number.
    __device__ int ahead() const { return keys - queries; }
    /// Keys from this one on are hidden from all queries below `query_end`.
    __device__ int key_end(int query_end) const {
        if (!causal || query_end >= queries) return keys;
        return query_end + ahead() > 0 ? query_end + ahead() : 0;
    }
    /// Queries below this one see none of the keys from `key` on.
    __device__ int query_begin(int key) const { return causal && key > ahead() ? key - ahead() : 0; }
    /// Does every one of these queries see every one of these keys, without a look at a mask?
    __device__ bool all(int query, int query_count, int key, int key_count) const {
        return !seen && !added && query + query_count <= queries && key + key_count <= keys &&
               (!causal || key + key_count - 1 <= query + ahead());
    }
    /// How many of the keys from `key` on a query may see, as far as no mask hides them: at most 64.
    __device__ int open(int query, int key) const {
        const int end = query < queries ? key_end(query + 1) - key : 0;
        return end < most_rows ? end : most_rows;
    }
    /// The score of an open pair as the softmax sees it: -inf where a mask hides it.
    __device__ A masked(A x, int query, int key) const {
        if (seen && !seen[query * seen_query + key * seen_key]) x = A(-INFINITY);
        if (!added) return x;
        const A bias = A(added[query * added_query + key * added_key]);
        return bias == A(-INFINITY) ? bias : x + bias;
    }
};

/// e^x for x <= 0.
__device__ __forceinline__ float score_exp(float x) { return std::exp2(x * 1.44269504f); }
__device__ __forceinline__ double score_exp(double x) { return math::exp(x); }

/// Dropout's decisions for the scores of a tile, in shared memory: bit e % 8 of the query's byte e / 8, where e counts
/// from the start of the block of eight that the first key's number lies in.
template <class T>
struct Decisions {
    static constexpr int row_bytes = most_rows / 8 + 1;  // a row may begin in the middle of a block
    static constexpr int bytes = most_rows * row_bytes;
    std::uint8_t* bits;
    std::uint64_t start;  ///< the number, within its sample, of the head's first score
    std::uint32_t sample;

    __device__ Decisions(const Operands<T>& o, std::int64_t b, std::int64_t h, void* shared)
        : bits(static_cast<std::uint8_t*>(shared)),
          start(std::uint64_t(((b % o.per_sample) * o.H + h) * o.queries) * unsigned(o.keys)),
          sample(std::uint32_t(o.draw.first_sample + b / o.per_sample)) {}

    __device__ void draw(const Operands<T>& o, int query, int queries, int key, int keys) const {
        for (int i = int(threadIdx.x); i < queries * row_bytes; i += int(blockDim.x)) {
            const int block = i % row_bytes;
            const std::uint64_t first = start + std::uint64_t(query + i / row_bytes) * unsigned(o.keys) + unsigned(key);
            if (block * 8 >= int(first % 8) + keys) continue;
            const PhiloxBlock words = o.draw.block(first / 8 + std::uint64_t(block), sample);
            unsigned byte = 0;
#pragma unroll
            for (int l = 0; l < 8; ++l) {
                const std::uint32_t lane = l % 2 == 0 ? words[l / 2] & 0xffffu : words[l / 2] >> 16;
                byte |= unsigned(lane >= o.threshold) << l;
            }
            bits[i] = std::uint8_t(byte);
        }
    }
    /// What the weight of the tile's query number `row` and key number `column` is multiplied by.
    __device__ Wide<T> factor(const Operands<T>& o, int query, int row, int key, int column) const {
        const auto first = unsigned(start) + unsigned(query + row) * unsigned(o.keys) + unsigned(key);
        const int e = int(first % 8) + column;
        return bits[row * row_bytes + e / 8] >> (e % 8) & 1 ? o.kept_scale : Wide<T>(0);
    }
};

// ---- host side ----

/// Shared memory that a block of this card may have.
inline std::size_t shared_limit(Device device) {
    int bytes = 0;
    cuda_check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index),
               "scaled_dot_product_attention");
    return std::size_t(bytes);
}

/// Work of the blocks: tiles of `rows` rows times parts of `width` features of every head.
struct Jobs {
    std::int64_t count;
    int tiles, parts;
    unsigned threads;

    Jobs(const Attention& a, std::int64_t rows, std::int64_t features, int width) {
        const std::int64_t warps = std::clamp<std::int64_t>(ceil_div(rows, warp_rows), 1, most_warps);
        tiles = int(ceil_div(rows, warps * warp_rows)),
        parts = int(std::max<std::int64_t>(1, ceil_div(features, width)));
        count = a.q.size(0) * a.q.size(1) * tiles * parts;
        threads = unsigned(warps * 32);
    }
    unsigned grid() const { return unsigned(std::min<std::int64_t>(count, 0x7fffffff)); }
    int rows() const { return int(threads / 2); }
};

/// One of them.
struct Job {
    std::int64_t b, h;
    int tile, part;
    __device__ Job(const Jobs& jobs, std::int64_t number, std::int64_t H)
        : b(number / jobs.parts / jobs.tiles / H),
          h(number / jobs.parts / jobs.tiles % H),
          tile(int(number / jobs.parts % jobs.tiles)),
          part(int(number % jobs.parts)) {}
};

/// f(T()) for the type that q, k and v are stored in.
template <class F>
void visit_attention(DType type, F&& f) {
    if (type == DType::f64)
        f(double());
    else if (type == DType::bf16)
        f(bfloat16());
    else
        f(float());
}

/// f(width) with the compiled width of tiles, of which `bytes(width)` bytes of shared memory are wanted.
template <class A, class Bytes, class F>
void visit_width(const Attention& a, Bytes&& bytes, F&& f) {
    const std::int64_t n = std::max(a.q.size(3), a.v.size(3));
    if constexpr (std::is_same_v<A, double>) {
        f(std::integral_constant<int, 32>());
    } else {
        constexpr std::integral_constant<int, 128> widest;
        if (n <= 32)
            f(std::integral_constant<int, 32>());
        else if (n <= 64 || bytes(widest) > shared_limit(a.q.device()))
            f(std::integral_constant<int, 64>());
        else
            f(widest);
    }
}

}  // namespace gradus::kernels::cuda
