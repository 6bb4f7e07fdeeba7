#include "gradus/kernels/attention.h"

#include <cmath>

#include "gradus/kernels/attention_block.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels::cpu {
namespace {

using math::k, math::select;

struct Sizes {
    std::int64_t B, H, T, S, D, E, width;
    explicit Sizes(const Attention& a)
        : B(a.q.size(0)),
          H(a.q.size(1)),
          T(a.q.size(2)),
          S(a.k.size(2)),
          D(a.q.size(3)),
          E(a.v.size(3)),
          width((std::min(T, block_size) + 15) / 16 * 16) {}
    /// Keys below this one may be seen by a query below `query_end`.
    std::int64_t key_end(const Attention& a, std::int64_t query_end) const {
        return a.causal ? std::clamp<std::int64_t>(query_end + S - T, 0, S) : S;
    }
    std::int64_t query_blocks() const { return (T + block_size - 1) / block_size; }
    std::int64_t key_blocks() const { return (S + block_size - 1) / block_size; }
    /// Heads are split over the cores, also in blocks where there are few heads: the bits of a result do not depend on
    /// it.
    bool few_heads() const { return B * H < thread_count() && (T > block_size || S > block_size); }
    std::int64_t grain(std::int64_t tasks_of_a_head) const {
        return std::max<std::int64_t>(1, 200000 * tasks_of_a_head / std::max<std::int64_t>(1, T * S * (D + E)));
    }
};

Scratch& scratch() {
    static thread_local Scratch memory;
    return memory;
}

/// The running maximum and sum of 64 queries while their keys come block by block.
template <class T>
struct Running {
    T top[block_size], sum[block_size], shrink[block_size];

    void start() {
        std::fill_n(top, block_size, T(-INFINITY));
        std::fill_n(sum, block_size, T(0));
    }
    /// Scores become weights e^(score - maximum), times the factors of dropout; `shrink` is what older results are to
    /// be scaled by.
    void add(const Block& at, T* score, const T* factor) {
        using V = Pack<T>;
        const auto larger = [](const V& x, const V& y) { return select(x > y, x, y); };
        for (std::int64_t i = 0; i < at.width; i += lanes<T>) {
            T* column = score + i;
            const V before = load(top + i);
            V a = before, b = before;
            std::int64_t j = 0;
            for (; j + 2 <= at.keys; j += 2) {
                a = larger(a, load(column + j * at.width));
                b = larger(b, load(column + (j + 1) * at.width));
            }
            if (j < at.keys) a = larger(a, load(column + j * at.width));
            const V now = larger(a, b);
            const V shift = select(now == k<V>(-INFINITY), k<V>(0), now);
            V total{};
            for (j = 0; j < at.keys; ++j) {
                const V weight = weight_exp(load(column + j * at.width) - shift);
                total += weight;
                store(column + j * at.width, factor ? weight * load(factor + j * at.width + i) : weight);
            }
            const V scale = weight_exp(before - shift);
            store(top + i, now);
            store(shrink + i, scale);
            store(sum + i, load(sum + i) * scale + total);
        }
    }
};

template <class T>
void forward_blocks(const Attention& a, const Sizes& n, std::int64_t b, std::int64_t h, std::int64_t begin,
                    std::int64_t end, const Tensor& y, T* lse) {
    const std::int64_t D = padded<T>(n.D), E = padded<T>(n.E), most = n.key_end(a, end);
    Scratch& memory = scratch();
    const std::int64_t count = most * (D + E) + block_size * (D + E) + D * n.width + (2 * block_size + 15) * n.width;
    memory.open(std::size_t(count) * sizeof(T), 7);
    T *keys = memory.part<T>(most * D), *values = memory.part<T>(most * E);
    T *q = memory.part<T>(block_size * D), *across = memory.part<T>(D * n.width), *sum = memory.part<T>(block_size * E);
    T *score = memory.part<T>(block_size * n.width), *factor = memory.part<T>((block_size + 15) * n.width);
    gather_rows<T>({a.k, b, h}, 0, most, T(1), keys);
    gather_rows<T>({a.v, b, h}, 0, most, T(1), values);
    const Head<T> out(y, b, h);
    Running<T> running;
    for (std::int64_t t = begin; t < end; t += block_size) {
        Block at{b, h, t, std::min(block_size, end - t), n.width, 0, 0};
        gather_rows<T>({a.q, b, h}, t, at.queries, T(a.scale), q);
        transpose_small(q, D, across, n.width, at.queries, n.D);
        running.start();
        const std::int64_t last = n.key_end(a, t + at.queries);
        if (last == 0) std::fill_n(sum, block_size * E, T(0));
        for (at.key = 0; at.key < last; at.key += block_size) {
            at.keys = std::min(block_size, last - at.key);
            small_product<T>({keys + at.key * D, D, 1}, across, n.width, score, n.width, at.keys, n.width / lanes<T>,
                             n.D, false);
            hide(a, at, score);
            if (a.dropout > 0) draw_factors(a, at, factor);
            running.add(at, score, a.dropout > 0 ? factor : nullptr);
            if (at.key > 0)
                for (std::int64_t i = 0; i < at.queries; ++i)
                    for (std::int64_t e = 0; e < E; e += lanes<T>)
                        store(sum + i * E + e, load(sum + i * E + e) * running.shrink[i]);
            small_product<T>({score, 1, n.width}, values + at.key * E, E, sum, E, at.queries, E / lanes<T>, at.keys,
                             at.key > 0);
        }
        for (std::int64_t i = 0; i < at.queries; ++i) {
            const T total = running.sum[i];
            if (total == 0) std::fill_n(sum + i * E, E, T(0));  // also where a value nobody saw is NaN
            spread_rows(sum + i * E, 1, total == 0 ? T(0) : 1 / total, out, t + i);
            lse[t + i] = total == 0 ? T(INFINITY) : running.top[i] + std::log(total);
        }
    }
}

/// Which part of a head's gradients to compute: dq of queries [query, query_end), dk and dv of keys [key, key_end).
struct Range {
    std::int64_t query, query_end, key, key_end;
    bool queries, keys;
};

template <class T>
struct Backward {
    const Attention& a;
    const Sizes& n;
    const T* lse;
    const Tensor &y, &g, &gq, &gk, &gv;

    void head(std::int64_t b, std::int64_t h, const Range& range) const {
        const std::int64_t D = padded<T>(n.D), E = padded<T>(n.E), S = range.key_end - range.key, W = n.width;
        Scratch& memory = scratch();
        const std::int64_t count = 2 * S * (D + E) + block_size * (2 * D + E) + (D + E) * W + (3 * block_size + 15) * W;
        memory.open(std::size_t(count) * sizeof(T), 12);
        T *keys = memory.part<T>(S * D), *values = memory.part<T>(S * E);
        T *keys_slope = memory.part<T>(S * D), *values_slope = memory.part<T>(S * E);
        T *q = memory.part<T>(block_size * D), *q_across = memory.part<T>(D * W),
          *q_slope = memory.part<T>(block_size * D);
        T *d = memory.part<T>(block_size * E), *d_across = memory.part<T>(E * W);
        T *weight = memory.part<T>(block_size * W), *slope = memory.part<T>(block_size * W);
        T* factor = memory.part<T>((block_size + 15) * W);
        T dot[block_size], shift[block_size];
        const bool several = n.S > block_size;
        gather_rows<T>({a.k, b, h}, range.key, S, T(1), keys);
        gather_rows<T>({a.v, b, h}, range.key, S, T(1), values);
        std::fill_n(keys_slope, S * D, T(0));
        std::fill_n(values_slope, S * E, T(0));
        for (std::int64_t t = range.query; t < range.query_end; t += block_size) {
            Block at{b, h, t, std::min(block_size, range.query_end - t), W, 0, 0};
            const std::int64_t last = std::min(range.key_end, n.key_end(a, t + at.queries));
            if (last <= range.key && !range.queries) continue;
            gather_rows<T>({a.q, b, h}, t, at.queries, T(a.scale), q);
            gather_rows<T>({g, b, h}, t, at.queries, T(1), d);
            transpose_small(q, D, q_across, W, at.queries, n.D);
            transpose_small(d, E, d_across, W, at.queries, n.E);
            if (several) row_dots(b, h, at, d, dot);
            std::fill_n(shift, block_size, T(INFINITY));
            std::copy_n(lse + t, at.queries, shift);
            std::fill_n(q_slope, at.queries * D, T(0));
            for (at.key = range.key; at.key < last; at.key += block_size) {
                at.keys = std::min(block_size, last - at.key);
                const std::int64_t key = at.key - range.key;
                small_product<T>({keys + key * D, D, 1}, q_across, W, weight, W, at.keys, W / lanes<T>, n.D, false);
                small_product<T>({values + key * E, E, 1}, d_across, W, slope, W, at.keys, W / lanes<T>, n.E, false);
                hide(a, at, weight);
                if (a.dropout > 0) draw_factors(a, at, factor);
                score_slopes(at, shift, several ? dot : nullptr, a.dropout > 0 ? factor : nullptr, weight, slope);
                if (range.keys) {
                    small_product<T>({weight, W, 1}, d, E, values_slope + key * E, E, at.keys, E / lanes<T>, at.queries,
                                     true);
                    small_product<T>({slope, W, 1}, q, D, keys_slope + key * D, D, at.keys, D / lanes<T>, at.queries,
                                     true);
                }
                if (range.queries)
                    small_product<T>({slope, 1, W}, keys + key * D, D, q_slope, D, at.queries, D / lanes<T>, at.keys,
                                     true);
            }
            if (range.queries) spread_rows(q_slope, at.queries, T(a.scale), Head<T>(gq, b, h), t);
        }
        if (!range.keys) return;
        spread_rows(keys_slope, S, T(1), Head<T>(gk, b, h), range.key);
        spread_rows(values_slope, S, T(1), Head<T>(gv, b, h), range.key);
    }

    /// dot[i] = Σ y g over a query's row: what softmax's slope subtracts.
    void row_dots(std::int64_t b, std::int64_t h, const Block& at, const T* d, T* dot) const {
        const Head<const T> value(y, b, h);
        const std::int64_t E = padded<T>(n.E);
        std::fill_n(dot, block_size, T(0));
        for (std::int64_t i = 0; i < at.queries; ++i) {
            const T* row = value.row(at.query + i);
            Pack<T> sum{};
            std::int64_t e = 0;
            for (; e + lanes<T> <= n.E; e += lanes<T>) sum += load(row + e) * load(d + i * E + e);
            if (e < n.E) sum += load_part(row + e, int(n.E - e)) * load(d + i * E + e);
            dot[i] = sum_lanes(sum);
        }
    }

    /// Scores become (dropped) weights, slopes of weights become slopes of scores. Where a block holds all keys, `dot`
    /// is null: it is added up here, which saves reading y.
    static void score_slopes(const Block& at, const T* shift, const T* dot, const T* factor, T* weight, T* slope) {
        using V = Pack<T>;
        for (std::int64_t i = 0; i < at.width; i += lanes<T>) {
            const V top = load(shift + i);
            V total{};
            for (std::int64_t here = i; here < at.keys * at.width; here += at.width) {
                const V p = weight_exp(load(weight + here) - top);
                const V given = factor ? load(slope + here) * load(factor + here) : load(slope + here);
                const V d = math::select(p == V{}, V{}, given);  // a value that is not seen may be NaN
                store(weight + here, p);
                store(slope + here, d);
                total += p * d;
            }
            if (dot) total = load(dot + i);
            for (std::int64_t here = i; here < at.keys * at.width; here += at.width) {
                const V p = load(weight + here);
                store(slope + here, p * (load(slope + here) - total));
                if (factor) store(weight + here, p * load(factor + here));
            }
        }
    }
};

}  // namespace

void attention(const Attention& a, const Tensor& y, const Tensor& lse) {
    const Sizes n(a);
    const auto run = [&]<class T>(T) {
        T* sums = lse.data<T>();
        const std::int64_t parts = n.few_heads() ? n.query_blocks() : 1;
        parallel_for(n.B * n.H * parts, n.grain(parts), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t head = i / parts, part = i % parts;
                const std::int64_t from = part * block_size, to = parts == 1 ? n.T : std::min(n.T, from + block_size);
                forward_blocks<T>(a, n, head / n.H, head % n.H, from, to, y, sums + head * n.T);
            }
        });
    };
    if (a.q.dtype() == DType::f64)
        run(double());
    else
        run(float());
}

void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& g, const Tensor& gq,
                        const Tensor& gk, const Tensor& gv) {
    const Sizes n(a);
    const auto run = [&]<class T>(T) {
        const std::int64_t by_query = n.few_heads() ? n.query_blocks() : 1, by_key = n.few_heads() ? n.key_blocks() : 0;
        const std::int64_t parts = by_query + by_key;
        parallel_for(n.B * n.H * parts, n.grain(parts), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t head = i / parts, part = i % parts;
                const Backward<T> work{a, n, lse.data<T>() + head * n.T, y, g, gq, gk, gv};
                Range range{0, n.T, 0, n.S, true, true};
                if (by_key > 0) {
                    // With few heads queries and keys are visited apart, at the price of computing the scores twice.
                    range.queries = part < by_query, range.keys = !range.queries;
                    const std::int64_t from = (range.queries ? part : part - by_query) * block_size;
                    if (range.queries)
                        range.query = from, range.query_end = std::min(n.T, from + block_size);
                    else
                        range.key = from, range.key_end = std::min(n.S, from + block_size);
                }
                work.head(head / n.H, head % n.H, range);
            }
        });
    };
    if (a.q.dtype() == DType::f64)
        run(double());
    else
        run(float());
}

}  // namespace gradus::kernels::cpu
