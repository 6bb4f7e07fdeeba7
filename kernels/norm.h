// The norm of one row and its slopes, strip by strip of rows: what layer norm and the residual's norm share on the CPU.
#pragma once

#include <vector>

#include "gradus/core/tensor.h"
#include "gradus/kernels/parallel.h"
#include "gradus/kernels/row.h"
#include "gradus/kernels/rowwise.h"

namespace gradus::kernels::cpu {

/// What a norm reads and writes; weight, bias and mean may be null.
template <class T>
struct NormRows {
    const T *x, *weight, *bias;
    T *y, *mean, *rstd;
    std::int64_t n;
    double eps;

    void forward(std::int64_t r) const {
        const T* row = x + r * n;
        T* out = y + r * n;
        // Two passes: E[x²] - E[x]² would cancel where the mean is large (the case of BB-042).
        const T centre = mean ? T(sum_row<T>(n, [=](Part<T> part) { return part.of(row); }) / double(n)) : T(0);
        const double square = sum_row<T>(n, [=](Part<T> part) {
            const Pack<T> d = part.of(row, centre) - centre;
            return d * d;
        });
        const T scale = T(1 / std::sqrt(square / double(n) + eps));
        if (mean) mean[r] = centre;
        rstd[r] = scale;
        const T *w = weight, *b = bias;
        each_part<T>(0, n, [=](Part<T> part) {
            Pack<T> v = (part.of(row) - centre) * scale;
            if (w) v *= part.of(w);
            if (b) v += part.of(b);
            part.put(out, v);
        });
    }
};

/// Backward of a strip of rows. Gradients of weight and bias are added up in `strip` (2, n) in T and moved to doubles
/// now and then.
template <class T>
struct NormSlopes {
    const T *g, *x, *weight, *mean, *rstd;
    T* gx;
    std::int64_t n;

    void row(std::int64_t r, T* gweight, T* gbias) const {
        const T *pg = g + r * n, *px = x + r * n, *w = weight;
        const T centre = mean ? mean[r] : T(0), scale = rstd[r];
        double first = 0, second = 0;
        for (std::int64_t chunk = 0; chunk < n; chunk += row_chunk) {
            Pack<T> s{}, q{};
            each_part<T>(chunk, std::min(n, chunk + row_chunk), [&](Part<T> part) {
                const Pack<T> d = part.of(pg), hat = (part.of(px, centre) - centre) * scale;
                if (gweight) part.put(gweight, part.of(gweight) + d * hat);
                if (gbias) part.put(gbias, part.of(gbias) + d);
                const Pack<T> h = w ? d * part.of(w) : d;
                s += h;
                q += h * hat;
            });
            first += double(sum_lanes(s)), second += double(sum_lanes(q));
        }
        if (!gx) return;
        T* out = gx + r * n;
        const T m = mean ? T(first / double(n)) : T(0), v = T(second / double(n));
        each_part<T>(0, n, [=](Part<T> part) {
            const Pack<T> d = part.of(pg), hat = (part.of(px) - centre) * scale;
            part.put(out, ((w ? d * part.of(w) : d) - m - hat * v) * scale);
        });
    }
};

inline constexpr std::int64_t flush_rows = 128;

/// How many strips the rows are cut into: decided by the sizes alone, so that sums do not depend on the thread count.
inline std::int64_t strip_count(std::int64_t rows, std::int64_t n) {
    return std::clamp<std::int64_t>(rows * n / 16384, 1, std::clamp<std::int64_t>(rows, 1, 32));
}

/// out[i] = Σ over the strips, in order.
template <class T>
void add_strips(const std::vector<double>& strips, std::int64_t count, std::int64_t n, int which, const Tensor& out) {
    if (!out.defined()) return;
    T* p = out.data<T>();
    for (std::int64_t i = 0; i < n; ++i) {
        double total = 0;
        for (std::int64_t s = 0; s < count; ++s) total += strips[std::size_t((s * 2 + which) * n + i)];
        p[i] = T(total);
    }
}

/// Rows that stay in the nearest cache while they are looked at again.
inline std::int64_t near_rows(std::int64_t n) { return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(n, 1)); }

/// All rows, with the gradients of weight and bias where they are defined. done(begin, end) is called, from several
/// threads, after each few rows, whose gx is still in the cache.
template <class T, class Done>
void norm_backward(const NormSlopes<T>& slopes, std::int64_t rows, const Tensor& gweight, const Tensor& gbias,
                   Done done) {
    const std::int64_t n = slopes.n, count = strip_count(rows, n);
    const bool sums = gweight.defined() || gbias.defined();
    std::vector<double> strips(sums ? std::size_t(count * 2 * n) : 0, 0.0);
    parallel_tasks(count, [&](std::int64_t s) {
        const std::int64_t begin = rows * s / count, end = rows * (s + 1) / count;
        std::vector<T> near(sums ? std::size_t(2 * n) : 0, T(0));
        T* gw = gweight.defined() ? near.data() : nullptr;
        T* gb = gbias.defined() ? near.data() + n : nullptr;
        std::int64_t fresh = begin;
        for (std::int64_t r = begin; r < end; ++r) {
            slopes.row(r, gw, gb);
            if (r + 1 - fresh == near_rows(n) || r + 1 == end) done(fresh, r + 1), fresh = r + 1;
            if (!sums || ((r - begin + 1) % flush_rows != 0 && r + 1 != end)) continue;
            double* far = strips.data() + s * 2 * n;
            for (std::int64_t i = 0; i < 2 * n; ++i)
                far[i] += double(near[std::size_t(i)]), near[std::size_t(i)] = T(0);
        }
    });
    add_strips<T>(strips, count, n, 0, gweight);
    add_strips<T>(strips, count, n, 1, gbias);
}

}  // namespace gradus::kernels::cpu
