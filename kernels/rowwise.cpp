#include "gradus/kernels/rowwise.h"

#include <algorithm>
#include <vector>

#include "gradus/kernels/parallel.h"
#include "gradus/kernels/row.h"

namespace gradus::kernels::cpu {
namespace {

using math::k, math::select;

std::int64_t width(const Tensor& x) { return x.rank() == 0 ? 1 : x.shape().back(); }
std::int64_t row_count(const Tensor& x) { return x.numel() == 0 ? 0 : x.numel() / width(x); }

/// f(row number) for every row, split over the cores.
template <class F>
void each_row(const Tensor& x, F&& f) {
    parallel_for(row_count(x), row_grain(width(x)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) f(r);
    });
}

/// y = e^(x - max) / Σ, where x gives the lanes of a part (-inf beyond it).
template <class T, class X>
void softmax_row(std::int64_t n, X&& x, T* y, bool nothing_is_zero) {
    const T top = max_row<T>(n, x);
    if (nothing_is_zero && top == -INFINITY) {
        std::fill_n(y, n, T(0));
        return;
    }
    const double total = sum_row<T>(n, [&](Part<T> part) {
        const Pack<T> e = weight_exp(x(part) - top);
        part.put(y, e);
        return e;
    });
    const T factor = T(1 / total);
    each_part<T>(0, n, [&](Part<T> part) { part.put(y, part.of(y) * factor); });
}

/// The mask of one row, as bytes beside each other.
struct MaskRows {
    const Layout& layout;
    const std::uint8_t* data;

    const std::uint8_t* row(std::int64_t r, std::vector<std::uint8_t>& buffer) const {
        const int last = layout.rank() - 1;
        std::int64_t at = 0;
        for (int axis = last - 1; axis >= 0; --axis) {
            at += r % layout.shape[axis] * layout.strides[axis];
            r /= layout.shape[axis];
        }
        const std::int64_t stride = layout.strides[last];
        if (stride == 1) return data + at;
        for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = data[at + std::int64_t(i) * stride];
        return buffer.data();
    }
};

typedef std::uint8_t u8x16 __attribute__((vector_size(16)));
typedef std::uint8_t u8x8 __attribute__((vector_size(8)));

/// The bytes of a part, one in each lane, as a mask of lanes.
auto seen_lanes(Part<float> part, const std::uint8_t* sees) {
    u8x16 bytes{};
    std::memcpy(&bytes, sees + part.at, std::size_t(part.count));
    return __builtin_convertvector(bytes, i32x16) != 0;
}
auto seen_lanes(Part<double> part, const std::uint8_t* sees) {
    u8x8 bytes{};
    std::memcpy(&bytes, sees + part.at, std::size_t(part.count));
    return __builtin_convertvector(bytes, i64x8) != 0;
}

}  // namespace

void softmax(const Tensor& x, const Tensor& y) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const std::int64_t n = width(x);
        const T* px = x.data<T>();
        T* py = y.data<T>();
        each_row(x, [=](std::int64_t r) {
            const T* row = px + r * n;
            softmax_row<T>(
                n, [=](Part<T> part) { return part.of(row, T(-INFINITY)); }, py + r * n, false);
        });
    });
}

void log_softmax(const Tensor& x, const Tensor& y) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const std::int64_t n = width(x);
        const T* px = x.data<T>();
        T* py = y.data<T>();
        each_row(x, [=](std::int64_t r) {
            const T* row = px + r * n;
            T* out = py + r * n;
            const T top = max_row<T>(n, [=](Part<T> part) { return part.of(row, T(-INFINITY)); });
            const double total =
                sum_row<T>(n, [=](Part<T> part) { return weight_exp(part.of(row, T(-INFINITY)) - top); });
            const T shift = T(std::log(total));  // x - top is exact for the largest ones, so it is taken off first
            each_part<T>(0, n, [=](Part<T> part) { part.put(out, (part.of(row) - top) - shift); });
        });
    });
}

void masked_softmax(const Tensor& x, const Tensor& visible, const Tensor& y) {
    visit_real(x.dtype(), [&]<class T>(T) {
        const std::int64_t n = width(x);
        const T* px = x.data<T>();
        T* py = y.data<T>();
        const MaskRows mask{visible.layout(), static_cast<const std::uint8_t*>(visible.address())};
        parallel_for(row_count(x), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
            std::vector<std::uint8_t> buffer(static_cast<std::size_t>(n));
            for (std::int64_t r = begin; r < end; ++r) {
                const T* row = px + r * n;
                const std::uint8_t* sees = mask.row(r, buffer);
                softmax_row<T>(
                    n,
                    [=](Part<T> part) {
                        const Pack<T> low = k<Pack<T>>(-INFINITY);
                        return select(seen_lanes(part, sees), part.of(row, T(-INFINITY)), low);
                    },
                    py + r * n, true);
            }
        });
    });
}

namespace {

template <class T, bool masked>
void softmax_slope(const T* g, const T* y, T* gx, std::int64_t n) {
    // Where nothing is seen, 0 · inf must not become NaN.
    const auto product = [=](Part<T> part, T shift) {
        const Pack<T> w = part.of(y), v = (part.of(g) - shift) * w;
        return masked ? select(w == k<Pack<T>>(0), k<Pack<T>>(0), v) : v;
    };
    const T dot = T(sum_row<T>(n, [=](Part<T> part) { return product(part, T(0)); }));
    each_part<T>(0, n, [=](Part<T> part) { part.put(gx, product(part, dot)); });
}

}  // namespace

void softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx, bool masked) {
    visit_real(g.dtype(), [&]<class T>(T) {
        const std::int64_t n = width(g);
        const T *pg = g.data<T>(), *py = y.data<T>();
        T* out = gx.data<T>();
        each_row(g, [=](std::int64_t r) {
            if (masked)
                softmax_slope<T, true>(pg + r * n, py + r * n, out + r * n, n);
            else
                softmax_slope<T, false>(pg + r * n, py + r * n, out + r * n, n);
        });
    });
}

void log_softmax_backward(const Tensor& g, const Tensor& y, const Tensor& gx) {
    visit_real(g.dtype(), [&]<class T>(T) {
        const std::int64_t n = width(g);
        const T *pg = g.data<T>(), *py = y.data<T>();
        T* out = gx.data<T>();
        each_row(g, [=](std::int64_t r) {
            const T *row = pg + r * n, *value = py + r * n;
            T* to = out + r * n;
            const T total = T(sum_row<T>(n, [=](Part<T> part) { return part.of(row); }));
            const bool asked = std::any_of(row, row + n, [](T g) { return g != 0; });
            // A row of NaN that nobody asked about gives 0, so that it does not reach the parameters (the case of
            // BB-003).
            each_part<T>(0, n, [=](Part<T> part) {
                part.put(to, asked ? part.of(row) - weight_exp(part.of(value)) * total : part.of(row));
            });
        });
    });
}

}  // namespace gradus::kernels::cpu
