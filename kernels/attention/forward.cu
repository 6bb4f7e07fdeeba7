// Attention forward: see Note [Attention on a card]. Flops: 4 B H T S D, half of that when causal; bytes: q, k, v and y
// once, k and v once more for each tile of 64 queries, from the cache.
// Dao, Fu, Ermon, Rudra, Ré: "FlashAttention" (NeurIPS 2022).
#include "gradus/kernels/attention/attention.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class A, int w>
constexpr std::size_t shared_bytes(int rows) {
    using S = Tile<A, w>;
    return std::size_t((rows + 2 * S::columns) * S::pitch + rows * S::across) * sizeof(A) + Decisions<A>::bytes;
}

/// The running maximum and sum of a thread's rows while their keys come tile by tile.
template <class A>
struct Running {
    A top[lane_rows], sum[lane_rows];  // `sum` of the thread's own columns only

    __device__ Running() {
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) top[i] = A(-INFINITY), sum[i] = 0;
    }
    /// Scores become weights e^(score - maximum); older results of row i are to be scaled by what is returned.
    template <int own>
    __device__ A add(int i, A (&score)[own]) {
        A now = top[i];
#pragma unroll
        for (int j = 0; j < own; ++j) now = score[j] > now ? score[j] : now;
#pragma unroll
        for (int o = 8; o > 0; o /= 2) {
            const A other = __shfl_xor_sync(all_lanes, now, o);
            now = other > now ? other : now;
        }
        const A shift = now == A(-INFINITY) ? A(0) : now, shrink = score_exp(top[i] - shift);
        A part = 0;
#pragma unroll
        for (int j = 0; j < own; ++j) part += score[j] = score_exp(score[j] - shift);
        sum[i] = sum[i] * shrink + part;
        top[i] = now;
        return shrink;
    }
    __device__ A total(int i) const {
        A all = sum[i];
#pragma unroll
        for (int o = 8; o > 0; o /= 2) all += __shfl_xor_sync(all_lanes, all, o);
        return all;
    }
};

template <class T, int w>
__global__ void __launch_bounds__(most_warps * 32, w > 64 || sizeof(T) == 8 ? 2 : 3)
    attention_kernel(Operands<T> o, Heads<T> y, Wide<T>* lse, Jobs jobs) {
    using A = Wide<T>;
    using S = Tile<A, w>;
    GRADUS_DYNAMIC_SHARED(A, shared);
    const int rows = int(blockDim.x) / 2;
    A *const q_tile = shared, *const k_tile = q_tile + rows * S::pitch, *const v_tile = k_tile + S::columns * S::pitch,
             *const weights = v_tile + S::columns * S::pitch;
    for (std::int64_t job = blockIdx.x; job < jobs.count; job += gridDim.x) {
        const Job at(jobs, job, o.H);
        const Head<const T> q = o.q.head(at.b, at.h), k = o.k.head(at.b, at.h), v = o.v.head(at.b, at.h);
        const Sight<T> sight(o, at.b, at.h);
        const Decisions<T> decisions(o, at.b, at.h, weights + rows * S::across);
        // From the last tile on: with a causal mask it has the most keys.
        const int query = (jobs.tiles - 1 - at.tile) * rows, feature = at.part * w;
        const int end = sight.key_end(query + rows);
        const bool busy = query + int(threadIdx.x / 32) * warp_rows < o.queries;
        Running<A> running;
        A sum[lane_rows][S::parts] = {};
        for (int key = 0; key < end; key += S::columns) {
            const int columns = depth_of(end - key, S::columns);
            A score[lane_rows][S::own] = {};
            for (int d = 0; d == 0 || d < o.D; d += w) {
                __syncthreads();  // the last tiles have been used
                if (key == 0 || o.D > w) load_tile<w>(q, query, rows, d, o.scale, q_tile);
                load_tile<w>(k, key, columns, d, A(1), k_tile);
                if (d == 0) load_tile<w>(v, key, columns, feature, A(1), v_tile);
                if (d == 0 && o.drops) decisions.draw(o, query, rows, key, columns);
                __syncthreads();
                if (busy) add_scores<w>(q_tile, k_tile, depth_of(o.D - d, w), score);
            }
            if (!busy) continue;
            if (!sight.all(query, rows, key, S::columns))
#pragma unroll
                for (int i = 0; i < lane_rows; ++i) {
                    const int row = query + own_row() + further(i);
                    const int open = sight.open(row, key);
#pragma unroll
                    for (int j = 0; j < S::own; ++j) {
                        const int column = own_column() + 16 * j;
                        score[i][j] = column < open ? sight.masked(score[i][j], row, key + column) : A(-INFINITY);
                    }
                }
#pragma unroll
            for (int i = 0; i < lane_rows; ++i) {
                const A shrink = running.add(i, score[i]);
#pragma unroll
                for (int c = 0; c < S::parts; ++c) sum[i][c] *= shrink;
            }
            if (o.drops)
#pragma unroll
                for (int i = 0; i < lane_rows; ++i)
#pragma unroll
                    for (int j = 0; j < S::own; ++j)
                        score[i][j] *= decisions.factor(o, query, own_row() + further(i), key, own_column() + 16 * j);
            store_weights<w>(score, weights);
            __syncwarp();
            add_results<w>(weights, v_tile, columns, sum);
        }
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            const int row = query + own_row() + further(i);
            const A total = running.total(i);
            if (total == A(0))  // a row that sees nothing is 0, also where a value that nobody saw is NaN
#pragma unroll
                for (int c = 0; c < S::parts; ++c) sum[i][c] = 0;
            store_row<w>(sum[i], total == A(0) ? A(0) : A(1) / total, y.head(at.b, at.h), row, feature);
            if (row < o.queries && at.part == 0 && own_column() == 0)
                lse[(at.b * o.H + at.h) * o.queries + row] =
                    total == A(0) ? A(INFINITY) : running.top[i] + math::log(total);
        }
    }
}

}  // namespace

void attention(const Attention& a, const Tensor& y, const Tensor& lse) {
    visit_attention(a.q.dtype(), [&](auto zero) {
        using T = decltype(zero);
        using A = Wide<T>;
        const auto bytes = [](auto width) { return shared_bytes<A, width.value>(most_rows); };
        visit_width<A>(a, bytes, [&](auto width) {
            const Jobs jobs(a, a.q.size(2), a.v.size(3), width.value);
            GRADUS_LAUNCH((attention_kernel<T, width.value>), y.device(), jobs.grid(), jobs.threads,
                          (shared_bytes<A, width.value>(jobs.rows())), Operands<T>(a), Heads<T>(y), lse.data<A>(),
                          jobs);
        });
    });
}

}  // namespace gradus::kernels::cuda
