// Attention backward: see Note [Attention on a card]. One kernel adds up y g over each row; one walks over the queries
// for each tile of keys and gives dk and dv; one walks over the keys for each tile of queries and gives dq. So every
// sum has one owner and one order, at the price of computing the scores twice: 14 B H T S D flops (4 of them twice),
// half when causal.
#include "gradus/kernels/attention/attention.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class A, int head>
struct Tile {
    static constexpr int shrink = sizeof(A) == 8 ? 2 : 1;
    static constexpr int queries = std::max(16, (head <= 64 ? 64 : head == 128 ? 32 : 16) / shrink);
    static constexpr int keys = head <= 64 ? 32 : head == 128 ? 32 / shrink : 16;
    static constexpr std::size_t bytes = (2 * (queries + keys) * (head + 1) + 2 * queries * (keys + 1)) * sizeof(A) +
                                         queries * Kept<queries, keys>::bytes;
};

/// dot (B, H, T) = sum of y g over a row: a warp a row.
template <class T>
__global__ void __launch_bounds__(attention_threads)
    row_dots_kernel(Heads<const T> y, Heads<const T> g, Wide<T>* dot, std::int64_t H, std::int64_t queries, int E,
                    std::int64_t rows) {
    const int lane = int(threadIdx.x % 32);
    const std::int64_t warps = std::int64_t(gridDim.x) * (attention_threads / 32);
    for (std::int64_t r = std::int64_t(blockIdx.x) * (attention_threads / 32) + threadIdx.x / 32; r < rows;
         r += warps) {
        const std::int64_t t = r % queries, h = r / queries % H, b = r / queries / H;
        const T *value = y.head(b, h) + t * y.stride, *slope = g.head(b, h) + t * g.stride;
        Wide<T> sum = 0;
        for (int e = lane; e < E; e += 32) sum += Wide<T>(value[e]) * Wide<T>(slope[e]);
        sum = warp_sum(sum);
        if (lane == 0) dot[r] = sum;
    }
}

/// The tiles of one step in shared memory.
template <class T, int head>
struct Step {
    using A = Wide<T>;
    using S = Tile<A, head>;
    using Bits = Kept<S::queries, S::keys>;
    static constexpr int rows = S::queries / 16, columns = S::keys / 16, parts = head / 16, pitch = head + 1,
                         across = S::keys + 1;
    A *q, *d, *k, *v, *weight,
        *slope;  // d: dL/dy; weight and slope: (queries, keys) of the dropped weights and dL/dscore
    std::uint8_t* bits;

    __device__ explicit Step(A* shared) {
        q = shared, d = q + S::queries * pitch, k = d + S::queries * pitch, v = k + S::keys * pitch;
        weight = v + S::keys * pitch, slope = weight + S::queries * across;
        bits = reinterpret_cast<std::uint8_t*>(slope + S::queries * across);
    }
    __device__ void load_queries(const Operands<T>& o, const Heads<const T>& g, std::int64_t b, std::int64_t h,
                                 std::int64_t query) const {
        load_tile<S::queries, head>(o.q.head(b, h), o.q.stride, query, o.queries, o.D, o.scale, q);
        load_tile<S::queries, head>(g.head(b, h), g.stride, query, o.queries, o.E, A(1), d);
    }
    __device__ void load_keys(const Operands<T>& o, std::int64_t b, std::int64_t h, std::int64_t key) const {
        load_tile<S::keys, head>(o.k.head(b, h), o.k.stride, key, o.keys, o.D, A(1), k);
        load_tile<S::keys, head>(o.v.head(b, h), o.v.stride, key, o.keys, o.E, A(1), v);
    }
    /// Fills weight and slope; the tiles have been loaded.
    __device__ void scores(const Operands<T>& o, const A* lse, const A* dot, std::int64_t b, std::int64_t h,
                           std::int64_t query, std::int64_t key) const {
        const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16) * rows;
        A score[rows][columns] = {}, wanted[rows][columns] = {};
#pragma unroll 4
        for (int n = 0; n < head; ++n) {
#pragma unroll
            for (int i = 0; i < rows; ++i)
#pragma unroll
                for (int j = 0; j < columns; ++j) {
                    score[i][j] += q[(y + i) * pitch + n] * k[(x + 16 * j) * pitch + n];
                    wanted[i][j] += d[(y + i) * pitch + n] * v[(x + 16 * j) * pitch + n];
                }
        }
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const std::int64_t t = query + y + i, row = (b * o.H + h) * o.queries + t;
            const A shift = t < o.queries ? lse[row] : A(INFINITY), total = t < o.queries ? dot[row] : A(0);
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const int c = x + 16 * j;
                const A p = score_exp(o.visible(score[i][j], b, h, t, key + c) - shift);
                const A factor = !o.drops ? A(1) : Bits::at(o, b, h, query, key, y + i, c, bits) ? o.kept_scale : A(0);
                weight[(y + i) * across + c] = p * factor;
                slope[(y + i) * across + c] = p * (wanted[i][j] * factor - total);
            }
        }
    }
};

template <class T, int head>
__global__ void __launch_bounds__(attention_threads)
    keys_kernel(Operands<T> o, Heads<const T> g, const Wide<T>* lse, const Wide<T>* dot, Heads<T> gk, Heads<T> gv,
                std::int64_t tiles, std::int64_t count) {
    using A = Wide<T>;
    using S = Tile<A, head>;
    using Parts = Step<T, head>;
    GRADUS_DYNAMIC_SHARED(A, shared);
    const Parts step(shared);
    constexpr int owned = S::keys / 16;
    const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16) * owned;
    for (std::int64_t job = blockIdx.x; job < count; job += gridDim.x) {
        const std::int64_t key = job % tiles * S::keys, h = job / tiles % o.H, b = job / tiles / o.H;
        step.load_keys(o, b, h, key);
        A k_sum[owned][Parts::parts] = {}, v_sum[owned][Parts::parts] = {};
        std::int64_t query = 0;
        while (query < o.queries && o.key_end(query + S::queries) <= key)
            query += S::queries;  // they see none of these
        for (; query < o.queries; query += S::queries) {
            step.load_queries(o, g, b, h, query);
            if (o.drops) Parts::Bits::draw(o, b, h, query, key, step.bits);
            __syncthreads();
            step.scores(o, lse, dot, b, h, query, key);
            __syncthreads();
#pragma unroll 4
            for (int t = 0; t < S::queries; ++t)
#pragma unroll
                for (int i = 0; i < owned; ++i) {
                    const A p = step.weight[t * Parts::across + y + i], s = step.slope[t * Parts::across + y + i];
#pragma unroll
                    for (int c = 0; c < Parts::parts; ++c) {
                        v_sum[i][c] += p * step.d[t * Parts::pitch + x + 16 * c];
                        k_sum[i][c] += s * step.q[t * Parts::pitch + x + 16 * c];  // q holds the scale
                    }
                }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < owned; ++i) {
            const std::int64_t s = key + y + i;
            if (s >= o.keys) continue;
            T *to_k = gk.head(b, h) + s * gk.stride, *to_v = gv.head(b, h) + s * gv.stride;
#pragma unroll
            for (int c = 0; c < Parts::parts; ++c) {
                if (x + 16 * c < o.D) to_k[x + 16 * c] = T(k_sum[i][c]);
                if (x + 16 * c < o.E) to_v[x + 16 * c] = T(v_sum[i][c]);
            }
        }
        __syncthreads();
    }
}

template <class T, int head>
__global__ void __launch_bounds__(attention_threads)
    queries_kernel(Operands<T> o, Heads<const T> g, const Wide<T>* lse, const Wide<T>* dot, Heads<T> gq,
                   std::int64_t tiles, std::int64_t count) {
    using A = Wide<T>;
    using S = Tile<A, head>;
    using Parts = Step<T, head>;
    GRADUS_DYNAMIC_SHARED(A, shared);
    const Parts step(shared);
    constexpr int owned = S::queries / 16;
    const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16) * owned;
    for (std::int64_t job = blockIdx.x; job < count; job += gridDim.x) {
        const std::int64_t query = job % tiles * S::queries, h = job / tiles % o.H, b = job / tiles / o.H;
        step.load_queries(o, g, b, h, query);
        A sum[owned][Parts::parts] = {};
        const std::int64_t last = query + S::queries < o.queries ? query + S::queries : o.queries;
        const std::int64_t end = o.key_end(last);
        for (std::int64_t key = 0; key < end; key += S::keys) {
            step.load_keys(o, b, h, key);
            if (o.drops) Parts::Bits::draw(o, b, h, query, key, step.bits);
            __syncthreads();
            step.scores(o, lse, dot, b, h, query, key);
            __syncthreads();
#pragma unroll 4
            for (int s = 0; s < S::keys; ++s)
#pragma unroll
                for (int i = 0; i < owned; ++i) {
                    const A p = step.slope[(y + i) * Parts::across + s];
#pragma unroll
                    for (int c = 0; c < Parts::parts; ++c) sum[i][c] += p * step.k[s * Parts::pitch + x + 16 * c];
                }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < owned; ++i) {
            const std::int64_t t = query + y + i;
            if (t >= o.queries) continue;
            T* to = gq.head(b, h) + t * gq.stride;
#pragma unroll
            for (int c = 0; c < Parts::parts; ++c)
                if (x + 16 * c < o.D) to[x + 16 * c] = T(sum[i][c] * o.scale);
        }
        __syncthreads();
    }
}

}  // namespace

void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& g, const Tensor& gq,
                        const Tensor& gk, const Tensor& gv) {
    visit_attention(a.q.dtype(), [&](auto zero) {
        using T = decltype(zero);
        using A = Wide<T>;
        const Device device = g.device();
        const Operands<T> o(a);
        const std::int64_t heads = o.B * o.H, rows = heads * o.queries;
        const Tensor dots = Tensor::empty({rows}, dtype_of<A>, device);
        GRADUS_LAUNCH((row_dots_kernel<T>), device, grid_for(rows, attention_threads / 32), attention_threads, 0,
                      Heads<const T>(y), Heads<const T>(g), dots.data<A>(), o.H, o.queries, o.E, rows);
        visit_head_size(std::max(a.q.size(3), a.v.size(3)), [&](auto head) {
            using S = Tile<A, head.value>;
            const auto grid = [](std::int64_t count) { return unsigned(std::min<std::int64_t>(count, 0x7fffffff)); };
            const std::int64_t key_tiles = ceil_div(o.keys, S::keys), query_tiles = ceil_div(o.queries, S::queries);
            GRADUS_LAUNCH((keys_kernel<T, head.value>), device, grid(heads * key_tiles), attention_threads, S::bytes, o,
                          Heads<const T>(g), lse.data<A>(), dots.data<A>(), Heads<T>(gk), Heads<T>(gv), key_tiles,
                          heads * key_tiles);
            GRADUS_LAUNCH((queries_kernel<T, head.value>), device, grid(heads * query_tiles), attention_threads,
                          S::bytes, o, Heads<const T>(g), lse.data<A>(), dots.data<A>(), Heads<T>(gq), query_tiles,
                          heads * query_tiles);
        });
    });
}

}  // namespace gradus::kernels::cuda
