#include "gradus/kernels/index.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/kernels/index_checks.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels {
namespace {

using std::int64_t;

constexpr int64_t grain = 16384;  // elements a task is worth
constexpr int64_t chunk = 256;    // lines a task walks side by side

int64_t grain_of(int64_t elements_each) { return std::max<int64_t>(1, grain / std::max<int64_t>(1, elements_each)); }

/// What a dtype is summed in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

int64_t product(const Shape& shape, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; ++i) n *= shape[i];
    return n;
}

/// Calls f with an unsigned integer of an element's size: moving elements does not depend on what they mean.
template <class F>
void visit_size(DType type, F&& f) {
    switch (size_of(type)) {
        case 1:
            return f(std::uint8_t());
        case 2:
            return f(std::uint16_t());
        case 4:
            return f(std::uint32_t());
        default:
            return f(std::uint64_t());
    }
}

/// Offsets of the lines along an axis: line i of a shape starts here in a tensor with these strides.
class Lines {
  public:
    Lines(const Shape& shape, int axis, const Strides& strides) {
        for (int i = shape.rank() - 1; i >= 0; --i) {
            if (i == axis || shape[i] == 1) continue;
            sizes_[count_] = shape[i], strides_[count_++] = strides[i];
        }
    }
    int64_t operator[](int64_t line) const {
        int64_t offset = 0;
        for (int i = 0; i < count_; ++i) {
            offset += line % sizes_[i] * strides_[i];
            line /= sizes_[i];
        }
        return offset;
    }

  private:
    int64_t sizes_[max_rank], strides_[max_rank];  // innermost first
    int count_ = 0;
};

/// The lines of a shape along an axis, a chunk of neighbours at a time: body(first line, how many). Each line belongs
/// to one task.
template <class Body>
void for_lines(const Shape& shape, int axis, const Body& body) {
    const int64_t length = shape[axis], lines = length == 0 ? 0 : shape.product() / length;
    parallel_for(lines, grain_of(length), [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; line += chunk) body(line, std::min(chunk, end - line));
    });
}

struct Starts {
    Starts(const Lines& lines, int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; ++i) at[i] = lines[first + i];
    }
    int64_t operator[](int64_t i) const { return at[i]; }
    int64_t at[chunk];
};

/// Both loops over a chunk of lines: the inner one goes along what lies closer together in memory.
template <class Body>
void for_chunk(bool along_axis, int64_t lines, int64_t length, const Body& body) {
    if (along_axis) {
        for (int64_t line = 0; line < lines; ++line)
            for (int64_t i = 0; i < length; ++i) body(line, i);
    } else {
        for (int64_t i = 0; i < length; ++i)
            for (int64_t line = 0; line < lines; ++line) body(line, i);
    }
}

/// The positions of each index value: order[start[j]] … order[start[j + 1] - 1] are the places where it is j, in order.
/// From the pool: an embedding needs them in every step.
struct Buckets {
    Buckets(const Tensor& index, int64_t bound)
        : starts(Tensor::empty({bound + 1}, DType::i64, index.device())), places(Tensor::empty_like(index)) {
        const int64_t count = index.numel();
        const int64_t* values = index.data<int64_t>();
        std::fill_n(start, bound + 1, 0);
        for (int64_t i = 0; i < count; ++i) ++start[values[i]];
        int64_t total = 0;
        for (int64_t j = 0; j <= bound; ++j) total += std::exchange(start[j], total);
        for (int64_t i = 0; i < count; ++i) order[start[values[i]]++] = i;
        // Each entry now is its bucket's end, which is the next one's start.
        for (int64_t j = bound; j > 0; --j) start[j] = start[j - 1];
        start[0] = 0;
    }
    Tensor starts, places;
    int64_t* const start = starts.data<int64_t>();
    int64_t* const order = places.data<int64_t>();
};

}  // namespace

Tensor cpu::checked_index(const char* op, const Tensor& index, int64_t bound) {
    assert(index.is_contiguous());
    const int64_t n = index.numel();
    const int64_t* values = index.data<int64_t>();
    std::atomic<int64_t> first = n;
    parallel_for(n, grain * 4, [&](int64_t begin, int64_t end) {
        bool bad = false;
        for (int64_t i = begin; i < end; ++i) bad |= std::uint64_t(values[i]) >= std::uint64_t(bound);
        if (!bad) return;
        int64_t at = begin;
        while (std::uint64_t(values[at]) < std::uint64_t(bound)) ++at;
        for (int64_t seen = first.load(); at < seen && !first.compare_exchange_weak(seen, at);) {
        }
    });
    if (first != n) raise(index_fault(op, index.shape(), first, values[first], bound));
    return index;
}

void cpu::index_select(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    assert(index.is_contiguous() && y.is_contiguous() && x.dtype() == y.dtype());
    if (y.numel() == 0) return;
    const int64_t count = index.numel(), outer = product(y.shape(), 0, axis),
                  inner = product(y.shape(), axis + 1, y.rank());
    const int64_t* places = index.data<int64_t>();
    // Before and after the axis, x is walked as two sets of lines.
    Shape before = y.shape(), after = y.shape();
    for (int i = 0; i < y.rank(); ++i) (i < axis ? after : before)[i] = 1;
    before[axis] = after[axis] = 1;
    const Lines outer_lines(before, axis, x.strides()), inner_lines(after, axis, x.strides());
    Layout block;
    for (int i = axis + 1; i < x.rank(); ++i) block.shape.push_back(x.size(i)), block.strides.push_back(x.strides()[i]);
    const bool plain = block.contiguous();
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        const U* source = static_cast<const U*>(x.address());
        U* target = static_cast<U*>(y.address());
        parallel_for(outer * count, grain_of(inner), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const U* from = source + outer_lines[row / count] + places[row % count] * x.strides()[axis];
                U* to = target + row * inner;
                if (plain)
                    std::memcpy(to, from, std::size_t(inner) * sizeof(U));
                else
                    for (int64_t i = 0; i < inner; ++i) to[i] = from[inner_lines[i]];
            }
        });
    });
}

void cpu::index_sum(const Tensor& x, int axis, const Tensor& index, int64_t skip, const Tensor& y) {
    assert(x.is_contiguous() && index.is_contiguous() && y.is_contiguous() && x.dtype() == y.dtype());
    if (y.numel() == 0) return;
    const int64_t count = index.numel(), bound = y.size(axis), outer = product(y.shape(), 0, axis),
                  inner = product(y.shape(), axis + 1, y.rank());
    const Buckets buckets(index, bound);
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* source = x.data<T>();
        T* target = y.data<T>();
        // Each row of y belongs to one task, which also zeroes it: no other pass over y.
        parallel_for(outer * bound, grain_of(inner), [&](int64_t begin, int64_t end) {
            std::vector<Sum<T>> sum(std::is_same_v<Sum<T>, T> ? 0 : std::size_t(inner));
            for (int64_t row = begin; row < end; ++row) {
                const int64_t block = row / bound, j = row % bound;
                T* to = target + row * inner;
                const int64_t from = buckets.start[j], until = j == skip ? from : buckets.start[j + 1];
                const auto part = [&](int64_t p) { return source + (block * count + buckets.order[p]) * inner; };
                if (from == until) {
                    std::fill_n(to, inner, T(0));
                } else if (until == from + 1) {
                    std::copy_n(part(from), inner, to);
                } else if constexpr (std::is_same_v<T, bool>) {
                    std::fill_n(to, inner, false);
                    for (int64_t p = from; p < until; ++p)
                        for (int64_t i = 0; i < inner; ++i) to[i] = to[i] || part(p)[i];
                } else if constexpr (std::is_same_v<Sum<T>, T>) {
                    std::copy_n(part(from), inner, to);
                    for (int64_t p = from + 1; p < until; ++p) {
                        const T* s = part(p);
                        for (int64_t i = 0; i < inner; ++i) to[i] = T(to[i] + s[i]);
                    }
                } else {
                    std::fill(sum.begin(), sum.end(), Sum<T>(0));
                    for (int64_t p = from; p < until; ++p) {
                        const T* s = part(p);
                        for (int64_t i = 0; i < inner; ++i) sum[std::size_t(i)] += Sum<T>(s[i]);
                    }
                    std::copy_n(sum.begin(), inner, to);
                }
            }
        });
    });
}

void cpu::gather(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    assert(index.is_contiguous() && y.is_contiguous() && y.shape() == index.shape() && x.dtype() == y.dtype());
    if (y.numel() == 0) return;
    const Lines from(y.shape(), axis, x.strides()), to(y.shape(), axis, y.strides());
    const int64_t length = y.size(axis), step = y.strides()[axis], x_step = x.strides()[axis];
    const int64_t* places = index.data<int64_t>();
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        const U* source = static_cast<const U*>(x.address());
        U* target = static_cast<U*>(y.address());
        for_lines(y.shape(), axis, [&](int64_t first, int64_t count) {
            const Starts x_start(from, first, count), y_start(to, first, count);
            for_chunk(step == 1, count, length, [&](int64_t line, int64_t i) {
                const int64_t at = y_start[line] + i * step;
                target[at] = source[x_start[line] + places[at] * x_step];
            });
        });
    });
}

void cpu::scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    assert(index.is_contiguous() && y.is_contiguous() && x.shape() == index.shape() && x.dtype() == y.dtype());
    if (index.numel() == 0) return;
    if (y.dtype() == DType::bf16 || y.dtype() == DType::f16) {
        const Tensor wide = Tensor::empty(y.shape(), DType::f32, y.device()),
                     part = Tensor::empty(x.shape(), DType::f32, x.device());
        cpu::copy(y, wide), cpu::copy(x, part);
        scatter_add(part, axis, index, wide);
        return cpu::copy(wide, y);
    }
    const Shape& shape = index.shape();
    const Lines of_index(shape, axis, index.strides()), from(shape, axis, x.strides()), to(shape, axis, y.strides());
    const int64_t length = shape[axis], step = index.strides()[axis], x_step = x.strides()[axis],
                  y_step = y.strides()[axis];
    const int64_t* places = index.data<int64_t>();
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* source = x.data<T>();
        T* target = y.data<T>();
        for_lines(shape, axis, [&](int64_t first, int64_t count) {
            const Starts start(of_index, first, count), x_start(from, first, count), y_start(to, first, count);
            for_chunk(step == 1, count, length, [&](int64_t line, int64_t i) {
                T& sum = target[y_start[line] + places[start[line] + i * step] * y_step];
                const T part = source[x_start[line] + i * x_step];
                if constexpr (std::is_same_v<T, bool>)
                    sum = sum || part;
                else
                    sum = T(sum + part);
            });
        });
    });
}

void cpu::one_hot(const Tensor& index, const Tensor& y) {
    assert(index.is_contiguous() && y.is_contiguous());
    if (y.numel() == 0) return;
    const int64_t classes = y.size(-1);
    const int64_t* places = index.data<int64_t>();
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        T* target = y.data<T>();
        parallel_for(index.numel(), grain_of(classes), [&](int64_t begin, int64_t end) {
            std::fill(target + begin * classes, target + end * classes, T(0));
            for (int64_t i = begin; i < end; ++i) target[i * classes + places[i]] = T(1);
        });
    });
}

}  // namespace gradus::kernels
