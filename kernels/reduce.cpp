#include "gradus/kernels/reduce.h"

#include <limits>
#include <vector>

#include "gradus/kernels/elementwise.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels::cpu {
namespace {

constexpr std::int64_t piece = 64 * chunk;       // elements of a row that one task reduces
constexpr std::int64_t tall = 4096, wide = 256;  // rows and columns of a task when columns are reduced
constexpr std::int64_t rows_in_f32 = 128;        // rows added in f32 before they join the f64 sum

/// What a reduction does: T is the element, A the accumulator.
template <Reduce what, class T>
struct Rule {
    using A = std::conditional_t<(what == Reduce::sum || what == Reduce::prod) && std::is_same_v<T, float>, double, T>;
    static A identity() {
        if constexpr (what == Reduce::sum) return 0;
        if constexpr (what == Reduce::prod) return 1;
        using L = std::numeric_limits<T>;
        if constexpr (what == Reduce::max)
            return L::has_infinity ? -L::infinity() : T(0);  // integers: the empty case of bools
        return L::has_infinity ? L::infinity() : T(1);
    }
    template <class V>
    static V join(V a, V b) {
        if constexpr (what == Reduce::sum)
            return a + b;
        else if constexpr (what == Reduce::prod)
            return a * b;
        else if constexpr (what == Reduce::max)
            return math::select((a > b) | (a != a), a, b);
        else
            return math::select((a < b) | (a != a), a, b);
    }
};

template <Reduce what, class T>
typename Rule<what, T>::A reduce_array(const T* x, std::int64_t n) {  // n >= 1
    using R = Rule<what, T>;
    using A = typename R::A;
    if constexpr (what == Reduce::prod || std::is_same_v<T, std::int64_t>) {
        A total = A(x[0]);
        for (std::int64_t i = 1; i < n; ++i) total = R::template join<A>(total, A(x[i]));
        return total;
    } else {
        constexpr int w = lanes<T>;
        if (n < w) {
            A total = A(x[0]);
            for (std::int64_t i = 1; i < n; ++i) total = R::template join<A>(total, A(x[i]));
            return total;
        }
        Pack<T> acc[4];
        const int used = int(std::min<std::int64_t>(4, n / w));
        for (int j = 0; j < used; ++j) acc[j] = load(x + j * w);
        std::int64_t i = used * w;
        if (used == 4)
            for (; i + 4 * w <= n; i += 4 * w)
                for (int j = 0; j < 4; ++j) acc[j] = R::template join<Pack<T>>(acc[j], load(x + i + j * w));
        for (; i + w <= n; i += w) acc[0] = R::template join<Pack<T>>(acc[0], load(x + i));
        for (int j = 1; j < used; ++j) acc[0] = R::template join<Pack<T>>(acc[0], acc[j]);
        A total = A(acc[0][0]);
        for (int j = 1; j < w; ++j) total = R::template join<A>(total, A(acc[0][j]));
        for (; i < n; ++i) total = R::template join<A>(total, A(x[i]));
        return total;
    }
}

/// x seen as (kept, reduced), both flattened.
struct Plan {
    Layout kept, reduced;  // offsets 0
    const char* base;
    DType from;
    std::int64_t rows, length;

    Plan(const Tensor& x, const Axes& axes) : base(static_cast<const char*>(x.address())), from(x.dtype()) {
        for (int i = 0, a = 0; i < x.rank(); ++i) {
            const bool gone = a < axes.rank() && axes[a] == i;
            a += gone;
            Layout& part = gone ? reduced : kept;
            part.shape.push_back(x.shape()[i]), part.strides.push_back(x.strides()[i]);
        }
        rows = kept.numel(), length = reduced.numel();
    }
    std::int64_t offset_of_row(std::int64_t row) const { return offset_in(kept, row); }
    static std::int64_t offset_in(const Layout& layout, std::int64_t index) {
        std::int64_t offset = 0;
        for (int i = layout.rank() - 1; i >= 0; --i) {
            offset += index % layout.shape[i] * layout.strides[i];
            index /= layout.shape[i];
        }
        return offset;
    }
};

struct alignas(64) Buffer {
    char bytes[chunk_bytes];
};

template <Reduce what, class T>
typename Rule<what, T>::A reduce_piece(const Plan& plan, const Walk& walk, std::int64_t row, std::int64_t start,
                                       std::int64_t end) {
    using R = Rule<what, T>;
    Buffer buffer, raw;
    const char* base = plan.base + plan.offset_of_row(row) * size_of(plan.from);
    const bool same = plan.from == dtype_of<T>;
    typename R::A total = R::identity();
    for (std::int64_t at = start; at < end; at += chunk) {
        const std::int64_t n = std::min(chunk, end - at);
        const void* array = buffer.bytes;
        if (walk.plain && same) {
            array = base + at * size_of(plan.from);
        } else if (same) {
            gather(walk, base, size_of(plan.from), at, n, buffer.bytes);
        } else {
            gather(walk, base, size_of(plan.from), at, n, raw.bytes);
            convert(plan.from, dtype_of<T>, raw.bytes, buffer.bytes, n);
        }
        const auto part = reduce_array<what, T>(static_cast<const T*>(array), n);
        total = at == start ? part : R::template join<typename R::A>(total, part);
    }
    return total;
}

template <Reduce what, class T>
void reduce_rows(const Plan& plan, const Tensor& y) {
    using R = Rule<what, T>;
    using A = typename R::A;
    const Walk walk(plan.reduced);
    const std::int64_t pieces = std::max<std::int64_t>(1, (plan.length + piece - 1) / piece);
    std::vector<A> parts(std::size_t(plan.rows * pieces));
    parallel_for(plan.rows * pieces,
                 std::max<std::int64_t>(1, 16 * chunk / std::max<std::int64_t>(1, std::min(plan.length, piece))),
                 [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                         const std::int64_t start = i % pieces * piece;
                         parts[std::size_t(i)] =
                             reduce_piece<what, T>(plan, walk, i / pieces, start, std::min(plan.length, start + piece));
                     }
                 });
    if (pieces > 1)
        for (std::int64_t row = 0; row < plan.rows; ++row) {
            A total = parts[std::size_t(row * pieces)];
            for (std::int64_t p = 1; p < pieces; ++p)
                total = R::template join<A>(total, parts[std::size_t(row * pieces + p)]);
            parts[std::size_t(row)] = total;
        }
    convert(dtype_of<A>, y.dtype(), parts.data(), y.address(), plan.rows);
}

/// The kept axes end in a run of stride 1: whole rows of it are joined at once.
template <Reduce what, class T>
void reduce_columns(const Plan& plan, std::int64_t run, const Tensor& y) {
    using R = Rule<what, T>;
    using A = typename R::A;
    const std::int64_t outer = plan.rows / run, columns = (run + wide - 1) / wide,
                       heights = (plan.length + tall - 1) / tall;
    std::vector<A> parts(std::size_t(plan.rows * heights));
    const bool same = plan.from == dtype_of<T>;
    const int size = size_of(plan.from);
    parallel_tasks(outer * columns * heights, [&](std::int64_t task) {
        const std::int64_t h = task % heights, c = task / heights % columns, o = task / heights / columns;
        const std::int64_t first = c * wide, n = std::min(wide, run - first);
        const char* base = plan.base + (plan.offset_of_row(o * run) + first) * size;
        A* total = parts.data() + h * plan.rows + o * run + first;
        std::fill_n(total, n, R::identity());
        alignas(64) T acc[wide], converted[wide];
        const std::int64_t last = std::min(plan.length, (h + 1) * tall);
        for (std::int64_t row = h * tall; row < last;) {
            const std::int64_t stop = std::min(last, row + rows_in_f32);
            for (bool fresh = true; row < stop; ++row, fresh = false) {
                const char* source = base + Plan::offset_in(plan.reduced, row) * size;
                const T* x = reinterpret_cast<const T*>(source);
                if (!same) convert(plan.from, dtype_of<T>, source, converted, n), x = converted;
                if (fresh)
                    std::copy_n(x, n, acc);
                else
                    for (std::int64_t i = 0; i < n; ++i) acc[i] = R::template join<T>(acc[i], x[i]);
            }
            for (std::int64_t i = 0; i < n; ++i) total[i] = R::template join<A>(total[i], A(acc[i]));
        }
    });
    for (std::int64_t h = 1; h < heights; ++h)
        for (std::int64_t i = 0; i < plan.rows; ++i)
            parts[std::size_t(i)] = R::template join<A>(parts[std::size_t(i)], parts[std::size_t(h * plan.rows + i)]);
    convert(dtype_of<A>, y.dtype(), parts.data(), y.address(), plan.rows);
}

template <Reduce what, class T>
void reduce_as(const Plan& plan, const Tensor& y) {
    const Walk kept(plan.kept), reduced(plan.reduced);
    const std::int64_t run = kept.strides[kept.rank - 1] == 1 ? kept.shape[kept.rank - 1] : 1;
    constexpr bool ordered_integers = std::is_same_v<T, std::int64_t> && (what == Reduce::max || what == Reduce::min);
    if (run > 1 && plan.length > 1 && !reduced.plain && !ordered_integers)
        reduce_columns<what, T>(plan, run, y);
    else
        reduce_rows<what, T>(plan, y);
}

template <Reduce what>
void reduce_by_type(const Tensor& x, const Axes& axes, const Tensor& y) {
    const Plan plan(x, axes);
    if (plan.rows == 0) return;
    switch (compute_type(x.dtype())) {
        case DType::f32:
            return reduce_as<what, float>(plan, y);
        case DType::f64:
            return reduce_as<what, double>(plan, y);
        default:
            return reduce_as<what, std::int64_t>(plan, y);
    }
}

}  // namespace

void reduce(Reduce what, const Tensor& x, const Axes& axes, const Tensor& y) {
    switch (what) {
        case Reduce::sum:
            return reduce_by_type<Reduce::sum>(x, axes, y);
        case Reduce::max:
            return reduce_by_type<Reduce::max>(x, axes, y);
        case Reduce::min:
            return reduce_by_type<Reduce::min>(x, axes, y);
        case Reduce::prod:
            return reduce_by_type<Reduce::prod>(x, axes, y);
    }
}

void arg_extreme(bool largest, const Tensor& x, int axis, const Tensor& y) {
    const Plan plan(x, Axes{axis});
    std::int64_t* out = y.data<std::int64_t>();
    const std::int64_t step = plan.reduced.strides[0];
    visit(x.dtype(), [&](auto zero) {
        using E = decltype(zero);
        using C = std::conditional_t<std::is_same_v<E, bfloat16> || std::is_same_v<E, float16>, float, E>;
        parallel_for(plan.rows, std::max<std::int64_t>(1, 16 * chunk / std::max<std::int64_t>(1, plan.length)),
                     [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t row = begin; row < end; ++row) {
                             const E* p = reinterpret_cast<const E*>(plan.base) + plan.offset_of_row(row);
                             std::int64_t best = 0;
                             C value = C(p[0]);
                             for (std::int64_t i = 1; i < plan.length && value == value; ++i) {
                                 const C next = C(p[i * step]);
                                 if (next != next || (largest ? next > value : next < value)) best = i, value = next;
                             }
                             out[row] = best;
                         }
                     });
    });
}

void cumsum(const Tensor& x, int axis, const Tensor& y) {
    const Plan from(x, Axes{axis}), to(y, Axes{axis});
    visit(x.dtype(), [&](auto zero) {
        using E = decltype(zero);
        using A = std::conditional_t<std::is_integral_v<E>, std::int64_t, double>;
        parallel_for(from.rows, std::max<std::int64_t>(1, 8 * chunk / std::max<std::int64_t>(1, from.length)),
                     [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t row = begin; row < end; ++row) {
                             const E* p = reinterpret_cast<const E*>(from.base) + from.offset_of_row(row);
                             E* q = y.data<E>() + to.offset_of_row(row);
                             A total = 0;
                             for (std::int64_t i = 0; i < from.length; ++i) {
                                 if constexpr (std::is_arithmetic_v<E>)
                                     total += A(p[i * from.reduced.strides[0]]);
                                 else
                                     total += A(float(p[i * from.reduced.strides[0]]));
                                 if constexpr (std::is_integral_v<E>)
                                     q[i * to.reduced.strides[0]] = E(total);
                                 else if constexpr (std::is_same_v<E, double>)
                                     q[i * to.reduced.strides[0]] = total;
                                 else
                                     q[i * to.reduced.strides[0]] = E(float(total));
                             }
                         }
                     });
    });
}

}  // namespace gradus::kernels::cpu
