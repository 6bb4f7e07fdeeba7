// Attention forward: see Note [Attention on a card]. Flops: 4 B H T S D, half of that when causal; bytes: q, k, v and y
// once, k and v once more for each tile of 64 queries, from the cache.
// Dao, Fu, Ermon, Rudra, Ré: "FlashAttention" (NeurIPS 2022).
#include "gradus/kernels/attention/attention.cuh"

namespace gradus::kernels::cuda {
namespace {

/// Queries and keys of a tile: as many as keep shared memory below 100 KB.
template <class A, int head>
struct Tile {
    static constexpr int shrink = sizeof(A) == 8 ? 2 : 1;
    static constexpr int queries = (head <= 128 ? 64 : 32) / shrink;
    static constexpr int keys = std::max(16, (head <= 64 ? 64 : head == 128 ? 32 : 16) / shrink);
    static constexpr std::size_t bytes =
        ((queries + 2 * keys) * (head + 1) + queries * (keys + 1)) * sizeof(A) + queries * Kept<queries, keys>::bytes;
};

template <class T, int head>
__global__ void __launch_bounds__(attention_threads)
    attention_kernel(Operands<T> o, Heads<T> result, Wide<T>* lse, std::int64_t tiles, std::int64_t count) {
    using A = Wide<T>;
    using S = Tile<A, head>;
    using Bits = Kept<S::queries, S::keys>;
    constexpr int rows = S::queries / 16, columns = S::keys / 16, parts = head / 16, pitch = head + 1;
    GRADUS_DYNAMIC_SHARED(A, shared);
    A *const q = shared, *const k = q + S::queries * pitch, *const v = k + S::keys * pitch,
             *const weight = v + S::keys * pitch;
    auto* const bits = reinterpret_cast<std::uint8_t*>(weight + S::queries * (S::keys + 1));
    const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16) * rows;
    for (std::int64_t job = blockIdx.x; job < count; job += gridDim.x) {
        const std::int64_t query = job % tiles * S::queries, h = job / tiles % o.H, b = job / tiles / o.H;
        load_tile<S::queries, head>(o.q.head(b, h), o.q.stride, query, o.queries, o.D, o.scale, q);
        A top[rows], total[rows], sum[rows][parts];
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            top[i] = A(-INFINITY), total[i] = 0;
#pragma unroll
            for (int c = 0; c < parts; ++c) sum[i][c] = 0;
        }
        const std::int64_t last = query + S::queries < o.queries ? query + S::queries : o.queries;
        const std::int64_t end = o.key_end(last);
        for (std::int64_t key = 0; key < end; key += S::keys) {
            load_tile<S::keys, head>(o.k.head(b, h), o.k.stride, key, o.keys, o.D, A(1), k);
            load_tile<S::keys, head>(o.v.head(b, h), o.v.stride, key, o.keys, o.E, A(1), v);
            if (o.drops) Bits::draw(o, b, h, query, key, bits);
            __syncthreads();
            A score[rows][columns] = {};
#pragma unroll 8
            for (int d = 0; d < head; ++d) {
                A left[rows], right[columns];
#pragma unroll
                for (int i = 0; i < rows; ++i) left[i] = q[(y + i) * pitch + d];
#pragma unroll
                for (int j = 0; j < columns; ++j) right[j] = k[(x + 16 * j) * pitch + d];
#pragma unroll
                for (int i = 0; i < rows; ++i)
#pragma unroll
                    for (int j = 0; j < columns; ++j) score[i][j] += left[i] * right[j];
            }
#pragma unroll
            for (int i = 0; i < rows; ++i) {
                A now = top[i];
#pragma unroll
                for (int j = 0; j < columns; ++j) {
                    score[i][j] = o.visible(score[i][j], b, h, query + y + i, key + x + 16 * j);
                    now = score[i][j] > now ? score[i][j] : now;
                }
                for (int w = 8; w > 0; w /= 2) {
                    const A other = __shfl_xor_sync(all_lanes, now, w);
                    now = other > now ? other : now;
                }
                const A shift = now == A(-INFINITY) ? A(0) : now, shrink = score_exp(top[i] - shift);
                A part = 0;
#pragma unroll
                for (int j = 0; j < columns; ++j) {
                    A p = score_exp(score[i][j] - shift);
                    part += p;
                    if (o.drops) p = Bits::at(o, b, h, query, key, y + i, x + 16 * j, bits) ? p * o.kept_scale : A(0);
                    weight[(y + i) * (S::keys + 1) + x + 16 * j] = p;
                }
                for (int w = 8; w > 0; w /= 2) part += __shfl_xor_sync(all_lanes, part, w);
                total[i] = total[i] * shrink + part;
                top[i] = now;
#pragma unroll
                for (int c = 0; c < parts; ++c) sum[i][c] *= shrink;
            }
            __syncwarp();  // a half warp reads the weights that it wrote itself
#pragma unroll 4
            for (int s = 0; s < S::keys; ++s) {
                A p[rows];
#pragma unroll
                for (int i = 0; i < rows; ++i) p[i] = weight[(y + i) * (S::keys + 1) + s];
#pragma unroll
                for (int c = 0; c < parts; ++c) {
                    const A value = v[s * pitch + x + 16 * c];
#pragma unroll
                    for (int i = 0; i < rows; ++i) sum[i][c] += p[i] * value;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const std::int64_t t = query + y + i;
            if (t >= o.queries) continue;
            // A row that sees nothing is 0, also where a value that nobody saw is NaN.
            const A factor = total[i] == A(0) ? A(0) : A(1) / total[i];
            T* out = result.head(b, h) + t * result.stride;
#pragma unroll
            for (int c = 0; c < parts; ++c)
                if (x + 16 * c < o.E) out[x + 16 * c] = T(total[i] == A(0) ? A(0) : sum[i][c] * factor);
            if (x == 0)
                lse[(b * o.H + h) * o.queries + t] = total[i] == A(0) ? A(INFINITY) : top[i] + math::log(total[i]);
        }
        __syncthreads();  // before the next tile of queries is loaded over this one
    }
}

}  // namespace

void attention(const Attention& a, const Tensor& y, const Tensor& lse) {
    visit_attention(a.q.dtype(), [&](auto zero) {
        using T = decltype(zero);
        visit_head_size(std::max(a.q.size(3), a.v.size(3)), [&](auto head) {
            using S = Tile<Wide<T>, head.value>;
            const Operands<T> operands(a);
            const std::int64_t tiles = ceil_div(operands.queries, S::queries), count = operands.B * operands.H * tiles;
            const auto grid = unsigned(std::min<std::int64_t>(count, 0x7fffffff));
            GRADUS_LAUNCH((attention_kernel<T, head.value>), y.device(), grid, attention_threads, S::bytes, operands,
                          Heads<T>(y), lse.data<Wide<T>>(), tiles, count);
        });
    });
}

}  // namespace gradus::kernels::cuda
