// What each op should give: slow, obviously right loops in f64 over plain arrays, without anything of the engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace gradus::tests::reference {

using Sizes = std::vector<std::int64_t>;
using Row = std::vector<double>;

/// Elements in row-major order.
struct Array {
    Sizes shape;
    Row values;
};

inline std::int64_t count(const Sizes& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t(1), std::multiplies<>());
}

inline int axis_of(std::int64_t axis, const Sizes& shape) {
    return int(axis < 0 ? axis + std::int64_t(shape.size()) : axis);
}

inline Sizes index_of(std::int64_t flat, const Sizes& shape) {
    Sizes index(shape.size());
    for (std::size_t i = shape.size(); i-- > 0;) {
        index[i] = flat % shape[i];
        flat /= shape[i];
    }
    return index;
}

/// The element at an index, which may have more axes than x or go on where x has size 1: so x stretches.
inline double at(const Array& x, const Sizes& index) {
    std::int64_t flat = 0;
    const std::size_t extra = index.size() - x.shape.size();
    for (std::size_t i = 0; i < x.shape.size(); ++i)
        flat = flat * x.shape[i] + (x.shape[i] == 1 ? 0 : index[i + extra]);
    return x.values[std::size_t(flat)];
}

/// The array whose element at each index is f(index).
template <class F>
Array make(const Sizes& shape, F f) {
    Array y{shape, {}};
    for (std::int64_t i = 0; i < count(shape); ++i) y.values.push_back(double(f(index_of(i, shape))));
    return y;
}

inline Sizes broadcast(Sizes a, Sizes b) {
    while (a.size() < b.size()) a.insert(a.begin(), 1);
    while (b.size() < a.size()) b.insert(b.begin(), 1);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] == 1 ? b[i] : a[i];
    return a;
}

template <class F>
Array map(const Array& x, F f) {
    return make(x.shape, [&](const Sizes& i) { return f(at(x, i)); });
}
template <class F>
Array zip(const Array& a, const Array& b, F f) {
    return make(broadcast(a.shape, b.shape), [&](const Sizes& i) { return f(at(a, i), at(b, i)); });
}
template <class F>
Array zip(const Array& a, const Array& b, const Array& c, F f) {
    return make(broadcast(a.shape, broadcast(b.shape, c.shape)),
                [&](const Sizes& i) { return f(at(a, i), at(b, i), at(c, i)); });
}

/// f over all elements that share the indices of the axes not named; no axes means all of them.
template <class F>
Array reduce(const Array& x, const Sizes& axes, bool keep, F f) {
    std::vector<bool> gone(x.shape.size(), axes.empty());
    for (const std::int64_t axis : axes) gone[std::size_t(axis_of(axis, x.shape))] = true;
    Sizes kept, shape;
    for (std::size_t i = 0; i < x.shape.size(); ++i) {
        kept.push_back(gone[i] ? 1 : x.shape[i]);
        if (keep || !gone[i]) shape.push_back(kept.back());
    }
    std::vector<Row> groups(std::size_t(count(kept)));
    for (std::int64_t i = 0; i < count(x.shape); ++i) {
        const Sizes index = index_of(i, x.shape);
        std::int64_t group = 0;
        for (std::size_t a = 0; a < kept.size(); ++a) group = group * kept[a] + (gone[a] ? 0 : index[a]);
        groups[std::size_t(group)].push_back(x.values[std::size_t(i)]);
    }
    Array y{shape, {}};
    for (const Row& group : groups) y.values.push_back(double(f(group)));
    return y;
}

/// f turns each row along an axis into another row of the same length.
template <class F>
Array along(const Array& x, std::int64_t axis, F f) {
    Array y = x;
    const std::size_t a = std::size_t(axis_of(axis, x.shape));
    std::int64_t step = 1;
    for (std::size_t i = a + 1; i < x.shape.size(); ++i) step *= x.shape[i];
    for (std::int64_t i = 0; i < count(x.shape); ++i) {
        if (index_of(i, x.shape)[a] != 0) continue;
        Row row;
        for (std::int64_t k = 0; k < x.shape[a]; ++k) row.push_back(x.values[std::size_t(i + k * step)]);
        row = f(row);
        for (std::int64_t k = 0; k < x.shape[a]; ++k) y.values[std::size_t(i + k * step)] = row[std::size_t(k)];
    }
    return y;
}

// ---- rows ----

inline double total(const Row& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
/// Counted from the first element, so that equal elements have exactly their own mean.
inline double mean(const Row& x) {
    double sum = 0;
    for (const double v : x) sum += v - x[0];
    return x.empty() ? std::nan("") : x[0] + sum / double(x.size());
}
inline double variance(const Row& x, double minus) {
    double sum = 0;
    for (const double v : x) sum += (v - mean(x)) * (v - mean(x));
    return double(x.size()) > minus ? sum / (double(x.size()) - minus) : std::nan("");
}
inline double largest(const Row& x) {
    double m = -INFINITY;
    for (const double v : x) m = std::isnan(v) || v > m ? v : m;
    return m;
}
inline double logsumexp(const Row& x) {
    const double m = largest(x);
    if (std::isinf(m)) return m;
    double sum = 0;
    for (const double v : x) sum += std::exp(v - m);
    return m + std::log(sum);
}
inline Row log_softmax(Row x) {
    const double l = logsumexp(x);
    for (double& v : x) v -= l;
    return x;
}
inline Row softmax(Row x) {
    for (double& v : x = log_softmax(x)) v = std::exp(v);
    return x;
}
/// softmax among the places whose `visible` is not 0; all zeros where there is none.
inline Row masked_softmax(const Row& x, const Row& visible) {
    Row seen, y(x.size(), 0);
    for (std::size_t i = 0; i < x.size(); ++i)
        if (visible[i] != 0) seen.push_back(x[i]);
    const double l = logsumexp(seen);
    for (std::size_t i = 0; i < x.size(); ++i)
        if (visible[i] != 0 && l > -INFINITY) y[i] = std::exp(x[i] - l);
    return y;
}

// ---- products ----

/// As NumPy's matmul: a vector counts as a row or a column that goes again, batch axes stretch.
inline Array matmul(Array a, Array b) {
    const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
    if (row) a.shape.insert(a.shape.begin(), 1);
    if (column) b.shape.push_back(1);
    const std::int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
    Sizes shape = broadcast(Sizes(a.shape.begin(), a.shape.end() - 2), Sizes(b.shape.begin(), b.shape.end() - 2));
    shape.push_back(m);
    shape.push_back(n);
    Array y = make(shape, [&](const Sizes& index) {
        Sizes left = index, right = index;
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
            left.back() = i;
            right[right.size() - 2] = i;
            sum += at(a, left) * at(b, right);
        }
        return sum;
    });
    if (column) y.shape.pop_back();
    if (row) y.shape.erase(y.shape.end() - (column ? 1 : 2));
    return y;
}

/// softmax(q kᵀ · scale + bias) v over the keys that `visible(b, h, t, s)` admits; (B, H, T, D) (B, H, S, D) (B, H, S,
/// E).
template <class Visible, class Bias>
Array attention(const Array& q, const Array& k, const Array& v, double scale, Visible visible, Bias bias) {
    const std::int64_t keys = k.shape[2], width = q.shape[3];
    return make({q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, [&](const Sizes& i) {
        Row scores, seen;
        for (std::int64_t s = 0; s < keys; ++s) {
            double dot = 0;
            for (std::int64_t d = 0; d < width; ++d) dot += at(q, {i[0], i[1], i[2], d}) * at(k, {i[0], i[1], s, d});
            scores.push_back(dot * scale + bias(i[0], i[1], i[2], s));
            seen.push_back(visible(i[0], i[1], i[2], s));
        }
        const Row weights = masked_softmax(scores, seen);
        double sum = 0;
        for (std::int64_t s = 0; s < keys; ++s) sum += weights[std::size_t(s)] * at(v, {i[0], i[1], s, i[3]});
        return sum;
    });
}

// ---- losses ----

struct CrossEntropy {
    std::int64_t ignore_index = -100;
    double smoothing = 0;
    Row weights = {};  ///< of the classes; empty: all 1
    enum { none, sum, mean } reduction = mean;
};

/// Logits (N, C, ...) with the class on axis 1; targets (N, ...).
inline Array cross_entropy(const Array& logits, const Array& targets, const CrossEntropy& options) {
    const Array logs = along(logits, 1, log_softmax);
    const std::int64_t classes = logits.shape[1];
    const Row weights = options.weights.empty() ? Row(std::size_t(classes), 1.0) : options.weights;
    double divisor = 0;
    Array rows = make(targets.shape, [&](const Sizes& index) {
        const auto target = std::int64_t(at(targets, index));
        if (target == options.ignore_index) return 0.0;
        Sizes place = index;
        place.insert(place.begin() + 1, target);
        divisor += weights[std::size_t(target)];
        double loss = -(1 - options.smoothing) * weights[std::size_t(target)] * at(logs, place);
        for (std::int64_t c = 0; c < classes && options.smoothing != 0; ++c) {
            place[1] = c;
            loss -= options.smoothing / double(classes) * weights[std::size_t(c)] * at(logs, place);
        }
        return loss;
    });
    if (options.reduction == CrossEntropy::none) return rows;
    const double sum = total(rows.values);
    return {{}, {options.reduction == CrossEntropy::sum ? sum : sum / divisor}};
}

}  // namespace gradus::tests::reference
