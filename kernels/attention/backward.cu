// Attention backward: see Note [Attention on a card]. One kernel adds up y g over each row. Then blocks that own keys
// walk over the queries and give dk and dv, and blocks that own queries walk over the keys and give dq: the price of
// one owner for every sum is that scores are computed twice. Flops: 14 B H T S D, half of that when causal.
#include "gradus/kernels/attention/attention.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class A, int w>
constexpr std::size_t shared_bytes(int rows) {
    using S = Tile<A, w>;
    return std::size_t(2 * (rows + S::columns) * S::pitch + rows * S::across + 2 * most_rows) * sizeof(A) +
           Decisions<A>::bytes;
}

/// dot (B, H, T) = Σ y g over a row: a warp a row.
template <class T>
__global__ void __launch_bounds__(256)
    row_dots_kernel(Heads<const T> y, Heads<const T> g, Wide<T>* dot, std::int64_t H, std::int64_t count) {
    const std::int64_t warps = std::int64_t(gridDim.x) * 8;
    for (std::int64_t i = std::int64_t(blockIdx.x) * 8 + threadIdx.x / 32; i < count; i += warps) {
        const std::int64_t row = i % y.rows, h = i / y.rows % H, b = i / y.rows / H;
        const T *value = y.head(b, h).data + row * y.stride, *slope = g.head(b, h).data + row * g.stride;
        Wide<T> sum = 0;
        for (std::int64_t e = threadIdx.x % 32; e < y.n; e += 32) sum += Wide<T>(value[e]) * Wide<T>(slope[e]);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) dot[i] = sum;
    }
}

/// Which of the two gradient kernels: its block owns queries and gives dq, or owns keys and gives dk and dv.
enum class Owned { queries, keys };

/// Scores and dL/dweight of a tile become dL/dscore and (dropped) weights.
template <Owned owned, class T, int own>
__device__ __forceinline__ void differentiate(const Operands<T>& o, const Sight<T>& sight,
                                              const Decisions<T>& decisions, const Wide<T>* lse, const Wide<T>* dot,
                                              int query, int key, bool all_visible, Wide<T> (&score)[lane_rows][own],
                                              Wide<T> (&slope)[lane_rows][own]) {
    using A = Wide<T>;
#pragma unroll
    for (int i = 0; i < lane_rows; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) {
            const int row = own_row() + further(i), column = own_column() + 16 * j;
            const int q = owned == Owned::queries ? row : column, k = owned == Owned::queries ? column : row;
            A x = score[i][j];
            if (!all_visible) x = k < sight.open(query + q, key) ? sight.masked(x, query + q, key + k) : A(-INFINITY);
            const A weight = score_exp(x - lse[q]);
            const A factor = o.drops ? decisions.factor(o, query, q, key, k) : A(1);
            // What is not seen has no slope, also where its value is NaN.
            score[i][j] = weight == A(0) ? A(0) : weight * (slope[i][j] * factor - dot[q]);
            slope[i][j] = weight * factor;
        }
}

template <class T, int w, Owned owned>
__global__ void __launch_bounds__(most_warps * 32, 2)
    gradient_kernel(Operands<T> o, Heads<const T> g, const Wide<T>* all_lse, const Wide<T>* all_dots,
                    Heads<T> first_result, Heads<T> second_result, Jobs jobs) {
    using A = Wide<T>;
    using S = Tile<A, w>;
    constexpr bool by_key = owned == Owned::keys;
    GRADUS_DYNAMIC_SHARED(A, shared);
    // Scores are first · other_first, dL/dweight is second · other_second; the block owns the rows of the former.
    const int rows = int(blockDim.x) / 2;
    A *const first_tile = shared, *const second_tile = first_tile + rows * S::pitch,
             *const other_first_tile = second_tile + rows * S::pitch,
             *const other_second_tile = other_first_tile + S::columns * S::pitch,
             *const weights = other_second_tile + S::columns * S::pitch, *const lse = weights + rows * S::across,
             *const dot = lse + most_rows;
    for (std::int64_t job = blockIdx.x; job < jobs.count; job += gridDim.x) {
        const Job at(jobs, job, o.H);
        const Head<const T> q = o.q.head(at.b, at.h), k = o.k.head(at.b, at.h), v = o.v.head(at.b, at.h),
                            d = g.head(at.b, at.h);
        const Head<const T>&first = by_key ? k : q, &second = by_key ? v : d;
        const Head<const T>&other_first = by_key ? q : k, &other_second = by_key ? d : v;
        const Sight<T> sight(o, at.b, at.h);
        const Decisions<T> decisions(o, at.b, at.h, dot + most_rows);
        const int feature = at.part * w;
        const std::int64_t head = (at.b * o.H + at.h) * o.queries;
        // With a causal mask the last queries and the first keys have the most work.
        const int row = (by_key ? at.tile : jobs.tiles - 1 - at.tile) * rows;
        const int begin = by_key ? sight.query_begin(row) : 0;
        const int end = by_key ? o.queries : sight.key_end(row + rows);
        const bool busy = row + int(threadIdx.x / 32) * warp_rows < first.rows;
        A first_sum[lane_rows][S::parts] = {}, second_sum[by_key ? lane_rows : 1][S::parts] = {};
        for (int other = begin; other < end; other += S::columns) {
            const int query = by_key ? other : row, key = by_key ? row : other;
            const int query_count = by_key ? S::columns : rows, key_count = by_key ? rows : S::columns;
            const int columns = depth_of(end - other, S::columns);
            A score[lane_rows][S::own] = {}, slope[lane_rows][S::own] = {};
            for (int n = 0; n == 0 || n < o.D || n < o.E; n += w) {
                __syncthreads();  // the last tiles have been used
                if (other == begin || o.D > w || o.E > w) {
                    load_tile<w>(first, row, rows, n, o.scale, first_tile);
                    load_tile<w>(second, row, rows, n, A(1), second_tile);
                }
                load_tile<w>(other_first, other, columns, n, A(1), other_first_tile);
                load_tile<w>(other_second, other, columns, n, A(1), other_second_tile);
                if (n == 0 && (by_key || other == begin))
                    for (int i = int(threadIdx.x); i < query_count; i += int(blockDim.x)) {
                        const bool inside = query + i < o.queries;
                        lse[i] = inside ? all_lse[head + query + i] : A(INFINITY);
                        dot[i] = inside ? all_dots[head + query + i] : A(0);
                    }
                if (n == 0 && o.drops) decisions.draw(o, query, by_key ? columns : rows, key, by_key ? rows : columns);
                __syncthreads();
                if (!busy) continue;
                add_scores<w>(first_tile, other_first_tile, depth_of(o.D - n, w), score);
                add_scores<w>(second_tile, other_second_tile, depth_of(o.E - n, w), slope);
            }
            if (o.D > w || o.E > w) {  // the features that this block adds up
                __syncthreads();
                load_tile<w>(other_first, other, columns, feature, A(1), other_first_tile);
                load_tile<w>(other_second, other, columns, feature, A(1), other_second_tile);
                __syncthreads();
            }
            if (!busy) continue;
            differentiate<owned>(o, sight, decisions, lse, dot, query, key,
                                 sight.all(query, query_count, key, key_count), score, slope);
            if constexpr (by_key) {
                store_weights<w>(slope, weights);
                __syncwarp();
                add_results<w>(weights, other_second_tile, columns, second_sum);
                __syncwarp();
            }
            store_weights<w>(score, weights);
            __syncwarp();
            add_results<w>(weights, other_first_tile, columns, first_sum);
        }
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            const int to = row + own_row() + further(i);
            store_row<w>(first_sum[i], o.scale, first_result.head(at.b, at.h), to, feature);
            if constexpr (by_key) store_row<w>(second_sum[i], A(1), second_result.head(at.b, at.h), to, feature);
        }
    }
}

}  // namespace

void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& g, const Tensor& gq,
                        const Tensor& gk, const Tensor& gv) {
    visit_attention(a.q.dtype(), [&](auto zero) {
        using T = decltype(zero);
        using A = Wide<T>;
        const Device device = g.device();
        const Tensor dots = Tensor::empty(lse.shape(), lse.dtype(), device);
        GRADUS_LAUNCH((row_dots_kernel<T>), device, grid_for(dots.numel(), 8), 256, 0, Heads<const T>(y),
                      Heads<const T>(g), dots.data<A>(), a.q.size(1), dots.numel());
        const auto bytes = [](auto width) { return shared_bytes<A, width.value>(most_rows); };
        visit_width<A>(a, bytes, [&](auto width) {
            constexpr int w = width.value;
            const Operands<T> o(a);
            const Heads<const T> slope(g);
            const Heads<T> q(gq), k(gk), v(gv);
            const Jobs by_key(a, o.keys, std::max(o.D, o.E), w), by_query(a, o.queries, o.D, w);
            GRADUS_LAUNCH((gradient_kernel<T, w, Owned::keys>), device, by_key.grid(), by_key.threads,
                          (shared_bytes<A, w>(by_key.rows())), o, slope, lse.data<A>(), dots.data<A>(), k, v, by_key);
            GRADUS_LAUNCH((gradient_kernel<T, w, Owned::queries>), device, by_query.grid(), by_query.threads,
                          (shared_bytes<A, w>(by_query.rows())), o, slope, lse.data<A>(), dots.data<A>(), q, q,
                          by_query);
        });
    });
}

}  // namespace gradus::kernels::cuda
