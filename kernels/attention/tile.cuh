// Tiles of attention in shared memory, and the two small products that everything is made of.
//
// Note [Tiles of attention]
// A warp owns 16 rows of a product. The lanes of half a warp share 8 of them and take every 16th column, so a row's
// maximum is four shuffles and what a warp has written for its rows, only it reads. Tiles lie row by row, 16 bytes
// longer than the row: 16 pieces of 16 bytes, one from each of 16 rows, fall into different banks, and so do the rows
// of the two halves. A lane multiplies 8 rows by 4 columns and reads 12 pieces for 128 products; what the lanes of a
// half read alike is one access.
#pragma once

#include "gradus/kernels/device.cuh"

namespace gradus::kernels::cuda {

inline constexpr int warp_rows = 16, lane_rows = 8, most_warps = 4, most_rows = most_warps * warp_rows;

/// Sizes of tiles that are `w` features wide, in the type of the sums.
template <class A, int w>
struct Tile {
    static constexpr int piece = int(16 / sizeof(A));
    static constexpr int width = w, pitch = w + piece;
    static constexpr int columns = sizeof(A) == 8 || w > 64 ? 32 : 64;  ///< rows of the tiles that come one by one
    static constexpr int own = columns / 16;                            ///< columns of a lane
    static constexpr int across = columns + piece;                      ///< pitch of a tile of weights
    static constexpr int parts = w / 16;                                ///< features of a result that a lane adds up,
    static constexpr int run = parts < piece ? parts : piece;           ///< of which so many lie side by side
};

/// Where the thread works: its i-th row is row() + further(i), its j-th column column() + 16 j.
__device__ __forceinline__ int own_row() { return int(threadIdx.x / 32) * warp_rows + int(threadIdx.x % 32) / 16 * 4; }
GRADUS_FN constexpr int further(int i) { return i % 4 + i / 4 * 8; }
__device__ __forceinline__ int own_column() { return int(threadIdx.x % 16); }

/// The feature that the thread's c-th sum of a row belongs to.
template <int w, class A>
__device__ __forceinline__ int own_feature(int c) {
    constexpr int run = Tile<A, w>::run;
    return c / run * 16 * run + own_column() * run + c % run;
}

/// One head: rows of n features.
template <class T>
struct Head {
    T* data;
    std::int64_t stride;
    int rows, n;
    bool pieces;  ///< all rows start on 16 bytes and fill whole pieces of 16
};

/// A (B, H, rows, n) tensor with a dense last axis.
template <class T>
struct Heads {
    T* data;
    std::int64_t b_stride, h_stride, stride;
    int rows, n;
    bool pieces;

    explicit Heads(const Tensor& x)
        : data(x.data<std::remove_const_t<T>>()),
          b_stride(x.strides()[0]),
          h_stride(x.strides()[1]),
          stride(x.strides()[2]),
          rows(int(x.size(2))),
          n(int(x.size(3))),
          pieces(aligned16(data) && (b_stride | h_stride | stride | n) % vector_lanes<T> == 0) {}
    __device__ Head<T> head(std::int64_t b, std::int64_t h) const {
        return {data + b * b_stride + h * h_stride, stride, rows, n, pieces};
    }
};

/// Rows [first, first + count) and features [feature, feature + w) of a head, times factor, as a tile; 0 outside.
template <int w, class T>
__device__ __forceinline__ void load_tile(const Head<const T>& x, int first, int count, int feature, Wide<T> factor,
                                          Wide<T>* tile) {
    using A = Wide<T>;
    constexpr int pitch = Tile<A, w>::pitch, piece = Tile<A, w>::piece, lanes = vector_lanes<T>, across = w / lanes;
    const int rows = x.rows - first;
    const T* const start = x.data + std::int64_t(first) * x.stride + feature;
    if (!x.pieces) {
#pragma unroll 1
        for (int i = int(threadIdx.x); i < count * w; i += int(blockDim.x)) {
            const int row = i / w, column = i % w;
            const bool inside = row < rows && feature + column < x.n;
            tile[row * pitch + column] = inside ? A(start[row * x.stride + column]) * factor : A(0);
        }
        return;
    }
    const int column = int(threadIdx.x) % across * lanes, step = int(blockDim.x) / across;
    const bool inside = feature + column < x.n;
#pragma unroll 4
    for (int row = int(threadIdx.x) / across; row < count; row += step) {
        Vector<T> v{};
        if (inside && row < rows) v = load16(start + row * x.stride + column);
#pragma unroll
        for (int l = 0; l < lanes; l += piece) {
            Vector<A> wide;
#pragma unroll
            for (int k = 0; k < piece; ++k) wide.lane[k] = A(v.lane[l + k]) * factor;
            store16(tile + row * pitch + column + l, wide);
        }
    }
}

/// The thread's sums of its i-th row, times factor, as features [feature, feature + w) of a row of x.
template <int w, class T, int parts>
__device__ __forceinline__ void store_row(const Wide<T> (&sum)[parts], Wide<T> factor, const Head<T>& x, int row,
                                          int feature) {
    using A = Wide<T>;
    constexpr int run = Tile<A, w>::run;
    if (row >= x.rows) return;
#pragma unroll
    for (int c = 0; c < parts; c += run) {
        const int at = feature + own_feature<w, A>(c);
        T* to = x.data + row * x.stride + at;
        Vector<T, run> v;
#pragma unroll
        for (int l = 0; l < run; ++l) v.lane[l] = T(sum[c + l] * factor);
        if (x.pieces) {
            if (at < x.n) *reinterpret_cast<Vector<T, run>*>(to) = v;
        } else {
#pragma unroll
            for (int l = 0; l < run; ++l)
                if (at + l < x.n) to[l] = v.lane[l];
        }
    }
}

/// score[i][j] += Σ left(own row i, d) · right(own column j, d) over the first `depth` features, a multiple of 16.
template <int w, class A, int own>
__device__ __forceinline__ void add_scores(const A* left, const A* right, int depth, A (&score)[lane_rows][own]) {
    using S = Tile<A, w>;
    left += own_row() * S::pitch, right += own_column() * S::pitch;
#pragma unroll 1
    for (int d = 0; d < depth; d += S::piece) {
        Vector<A> b[own];
#pragma unroll
        for (int j = 0; j < own; ++j) b[j] = load16(right + 16 * j * S::pitch + d);
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            const Vector<A> a = load16(left + further(i) * S::pitch + d);
#pragma unroll
            for (int j = 0; j < own; ++j)
#pragma unroll
                for (int l = 0; l < S::piece; ++l) score[i][j] += a.lane[l] * b[j].lane[l];
        }
    }
}

/// sum[i][c] += Σ weight(own row i, s) · value(s, own feature c) over the first `depth` columns s, a multiple of 16.
template <int w, class A, int parts>
__device__ __forceinline__ void add_results(const A* weight, const A* value, int depth, A (&sum)[lane_rows][parts]) {
    using S = Tile<A, w>;
    weight += own_row() * S::across, value += own_feature<w, A>(0);
#pragma unroll 1
    for (int s = 0; s < depth; s += S::piece, weight += S::piece, value += S::piece * S::pitch) {
        Vector<A, S::run> b[S::piece][parts / S::run];
#pragma unroll
        for (int l = 0; l < S::piece; ++l)
#pragma unroll
            for (int c = 0; c < parts; c += S::run)
                b[l][c / S::run] = *reinterpret_cast<const Vector<A, S::run>*>(value + l * S::pitch + 16 * c);
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            const Vector<A> a = load16(weight + further(i) * S::across);
#pragma unroll
            for (int l = 0; l < S::piece; ++l)
#pragma unroll
                for (int c = 0; c < parts; ++c) sum[i][c] += a.lane[l] * b[l][c / S::run].lane[c % S::run];
        }
    }
}

/// Writes what the thread knows of a tile of weights.
template <int w, class A, int own>
__device__ __forceinline__ void store_weights(const A (&weight)[lane_rows][own], A* tile) {
    tile += own_row() * Tile<A, w>::across + own_column();
#pragma unroll
    for (int i = 0; i < lane_rows; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) tile[further(i) * Tile<A, w>::across + 16 * j] = weight[i][j];
}

/// How far a product has to go that `n` features are left for, in a tile of w.
GRADUS_FN constexpr int depth_of(int n, int w) { return n <= 0 ? 0 : n >= w ? w : (n + 15) / 16 * 16; }

}  // namespace gradus::kernels::cuda
