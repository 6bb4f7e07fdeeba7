// What the attention kernels share: the operands by pointer and stride, tiles in shared memory, and what hides or drops
// a score.
//
// Note [Attention on a card]
// A block works on a tile of queries and a tile of keys at a time, as 16 x 16 threads. Thread (y, x) owns the scores of
// queries y · R + i and keys x + 16 j: its queries are those of 15 neighbours in the same half of a warp, so a row's
// maximum and sum are four shuffles, and keys 16 apart lie in different banks. Columns of a result are x + 16 c,
// likewise. Head sizes are compiled for 32, 64, 128 and 256; smaller ones are filled up with zeros. Nothing of size T x
// S is stored: the backward pass computes the scores again from the log-sums, and draws dropout's numbers again.
#pragma once

#include "gradus/kernels/attention.h"
#include "gradus/kernels/device.cuh"
#include "gradus/kernels/dropout.h"

namespace gradus::kernels::cuda {

inline constexpr int attention_threads = 256;

/// A (B, H, rows, n) tensor with a dense last axis.
template <class T>
struct Heads {
    T* data;
    std::int64_t b_stride, h_stride, stride;

    explicit Heads(const Tensor& x)
        : data(x.data<std::remove_const_t<T>>()),
          b_stride(x.strides()[0]),
          h_stride(x.strides()[1]),
          stride(x.strides()[2]) {}
    __device__ T* head(std::int64_t b, std::int64_t h) const { return data + b * b_stride + h * h_stride; }
};

/// A (B, H, T, S) tensor of any strides, or none.
template <class T>
struct Scores {
    const T* data = nullptr;
    std::int64_t strides[4] = {};

    Scores() = default;
    explicit Scores(const Tensor& x) {
        if (!x.defined()) return;
        data = static_cast<const T*>(x.address());
        for (int i = 0; i < 4; ++i) strides[i] = x.strides()[i];
    }
    __device__ T at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) const {
        return data[b * strides[0] + h * strides[1] + t * strides[2] + s * strides[3]];
    }
};

template <class T>
struct Operands {
    using A = Wide<T>;
    Heads<const T> q, k, v;
    Scores<std::uint8_t> mask;
    Scores<T> additive;
    std::int64_t B, H, queries, keys;
    int D, E;
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
          B(a.q.size(0)),
          H(a.q.size(1)),
          queries(a.q.size(2)),
          keys(a.k.size(2)),
          D(int(a.q.size(3))),
          E(int(a.v.size(3))),
          causal(a.causal),
          drops(a.dropout > 0),
          scale(A(a.scale)),
          kept_scale(A(a.dropout < 1 ? dropout_scale(a.dropout) : 0)),
          threshold(dropout_threshold(a.dropout)),
          draw(a.draw),
          per_sample(a.draw.samples == 0 ? a.q.size(0) : a.q.size(0) / a.draw.samples) {}
    /// Keys from this one on are hidden from all queries below `query_end`.
    __device__ std::int64_t key_end(std::int64_t query_end) const {
        if (!causal) return keys;
        const std::int64_t end = query_end + keys - queries;
        return end < 0 ? 0 : end < keys ? end : keys;
    }
    /// A score as the softmax sees it: -inf where it is hidden or outside.
    __device__ A visible(A score, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) const {
        if (t >= queries || s >= keys || (causal && s > t + keys - queries)) return A(-INFINITY);
        if (mask.data && !mask.at(b, h, t, s)) return A(-INFINITY);
        if (!additive.data) return score;
        const A bias = A(additive.at(b, h, t, s));
        return bias == A(-INFINITY) ? bias : score + bias;
    }
};

/// e^x as a softmax needs it: exactly 0 where it would not be a normal number.
__device__ __forceinline__ float score_exp(float x) { return x < -87.0f ? 0.0f : math::exp(x); }
__device__ __forceinline__ double score_exp(double x) { return x < -708.0 ? 0.0 : math::exp(x); }

/// Rows [first, first + rows) of a head, as far as there are `count` of them, into rows of `width` + 1; the rest is 0.
template <int rows, int width, class T, class A>
__device__ void load_tile(const T* head, std::int64_t stride, std::int64_t first, std::int64_t count, int n, A factor,
                          A* tile) {
    for (int i = int(threadIdx.x); i < rows * width; i += attention_threads) {
        const int r = i / width, c = i % width;
        const bool inside = first + r < count && c < n;
        tile[r * (width + 1) + c] = inside ? A(head[(first + r) * stride + c]) * factor : A(0);
    }
}

/// Dropout's decisions for a tile, a bit a score: bit (e % 8) of the row's byte e / 8, where e counts from `shift`.
template <int rows, int width>
struct Kept {
    static constexpr int bytes = width / 8 + 1;  // a row may begin in the middle of a block of eight

    template <class T>
    static __device__ void draw(const Operands<T>& o, std::int64_t b, std::int64_t h, std::int64_t query,
                                std::int64_t key, std::uint8_t* bits) {
        const auto sample = std::uint32_t(o.draw.first_sample + b / o.per_sample);
        for (int i = int(threadIdx.x); i < rows * bytes; i += attention_threads) {
            const int r = i / bytes, g = i % bytes;
            const std::uint64_t first = start(o, b, h, query + r, key) / 8 + std::uint64_t(g);
            const PhiloxBlock words = o.draw.block(first, sample);
            unsigned byte = 0;
            for (int l = 0; l < 8; ++l) {
                const std::uint32_t lane = l % 2 == 0 ? words[l / 2] & 0xffffu : words[l / 2] >> 16;
                byte |= unsigned(lane >= o.threshold) << l;
            }
            bits[i] = std::uint8_t(byte);
        }
    }
    template <class T>
    static __device__ bool at(const Operands<T>& o, std::int64_t b, std::int64_t h, std::int64_t query,
                              std::int64_t key, int r, int c, const std::uint8_t* bits) {
        const int e = int(start(o, b, h, query + r, key) % 8) + c;
        return bits[r * bytes + e / 8] >> (e % 8) & 1;
    }

  private:
    /// The number, within its sample, of the score of a query and a key.
    template <class T>
    static __device__ std::uint64_t start(const Operands<T>& o, std::int64_t b, std::int64_t h, std::int64_t query,
                                          std::int64_t key) {
        return std::uint64_t((((b % o.per_sample) * o.H + h) * o.queries + query) * o.keys + key);
    }
};

/// Calls f with the compiled head size as a constant.
template <class F>
void visit_head_size(std::int64_t n, F&& f) {
    if (n <= 32)
        f(std::integral_constant<int, 32>());
    else if (n <= 64)
        f(std::integral_constant<int, 64>());
    else if (n <= 128)
        f(std::integral_constant<int, 128>());
    else {
        check(n <= 256, "scaled_dot_product_attention: heads of more than 256 features are not there on cards: got ", n,
              ": use more heads, or compose it from matmul and softmax");
        f(std::integral_constant<int, 256>());
    }
}

template <class F>
void visit_attention(DType type, F&& f) {
    if (type == DType::f64)
        f(double());
    else if (type == DType::bf16)
        f(bfloat16());
    else
        f(float());
}

}  // namespace gradus::kernels::cuda
