// Reading and adding at computed places on a card.
//
// Additions to one place run in the order of the index, so that results repeat and equal the CPU's: the positions are
// sorted by their index first, stably, and each place then adds up its own. Bytes of an embedding's gradient: the
// tokens' rows are read once and every row of the table is written once.
#include "gradus/kernels/index.h"

#include "gradus/kernels/checked_numbers.cuh"
#include "gradus/kernels/device.cuh"
#include "gradus/kernels/index_checks.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/sorted_positions.cuh"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256;

__device__ __forceinline__ std::int64_t first_item() { return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ std::int64_t item_step() { return std::int64_t(gridDim.x) * blockDim.x; }

/// A warp a row of `inner` elements: y(outer, i, inner) = x(outer, place of i, inner).
template <class U>
__global__ void __launch_bounds__(threads)
    select_kernel(const U* x, Walk outer, std::int64_t step, Walk inner, std::int64_t inner_count,
                  const std::int64_t* places, std::int64_t count, U* y, std::int64_t rows) {
    const int lane = int(threadIdx.x % 32);
    const std::int64_t warps = std::int64_t(gridDim.x) * (threads / 32);
    for (std::int64_t row = std::int64_t(blockIdx.x) * (threads / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const U* from = x + outer.offset(row / count) + places[row % count] * step;
        for (std::int64_t i = lane; i < inner_count; i += 32) y[row * inner_count + i] = from[inner.offset(i)];
    }
}

/// A warp a row of y: y(outer, j, inner) = sum of x(outer, i, inner) over the positions i of j.
template <class T>
__global__ void __launch_bounds__(threads)
    sum_kernel(const T* x, const std::int64_t* starts, const std::int64_t* order, std::int64_t count,
               std::int64_t bound, std::int64_t inner, std::int64_t skip, T* y, std::int64_t rows) {
    using W = std::conditional_t<std::is_same_v<T, bool>, int, Wide<T>>;
    const int lane = int(threadIdx.x % 32);
    const std::int64_t warps = std::int64_t(gridDim.x) * (threads / 32);
    for (std::int64_t row = std::int64_t(blockIdx.x) * (threads / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const std::int64_t j = row % bound, begin = starts[j], end = j == skip ? begin : starts[j + 1];
        const T* block = x + row / bound * count * inner;
        for (std::int64_t i = lane; i < inner; i += 32) {
            W sum = 0;
            for (std::int64_t p = begin; p < end; ++p) sum += W(block[order[p] * inner + i]);
            y[row * inner + i] = T(sum);
        }
    }
}

template <class U>
__global__ void __launch_bounds__(threads)
    gather_kernel(const U* x, Walk lines, std::int64_t step, const std::int64_t* places, U* y, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step()) y[i] = x[lines.offset(i) + places[i] * step];
}

/// bool adds as "or", all else in its own type.
template <class T>
__device__ __forceinline__ T added(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
        return a || b;
    else
        return T(a + b);
}

/// A thread a line: many lines, each short.
template <class T>
__global__ void __launch_bounds__(threads)
    scatter_lines_kernel(const T* x, Walk lines_of_x, std::int64_t x_step, const std::int64_t* places,
                         Walk lines_of_places, std::int64_t step, T* y, Walk lines_of_y, std::int64_t y_step,
                         std::int64_t length, std::int64_t lines) {
    for (std::int64_t line = first_item(); line < lines; line += item_step()) {
        const T* from = x + lines_of_x.offset(line);
        const std::int64_t* at = places + lines_of_places.offset(line);
        T* to = y + lines_of_y.offset(line);
        for (std::int64_t i = 0; i < length; ++i) {
            T& sum = to[at[i * step] * y_step];
            sum = added(sum, from[i * x_step]);
        }
    }
}

/// A thread a place of one line, whose positions are sorted.
template <class T>
__global__ void __launch_bounds__(threads)
    scatter_places_kernel(const T* x, std::int64_t x_step, const std::int64_t* starts, const std::int64_t* order, T* y,
                          std::int64_t y_step, std::int64_t bound) {
    for (std::int64_t j = first_item(); j < bound; j += item_step()) {
        T sum = y[j * y_step];
        for (std::int64_t p = starts[j]; p < starts[j + 1]; ++p) sum = added(sum, x[order[p] * x_step]);
        y[j * y_step] = sum;
    }
}

template <class T>
__global__ void __launch_bounds__(threads)
    one_hot_kernel(const std::int64_t* places, std::int64_t classes, T* y, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step())
        y[i] = T(places[i / classes] == i % classes ? 1.0f : 0.0f);
}

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

/// The lines of a shape along an axis, walked with these strides.
Walk lines_of(Shape shape, int axis, const Strides& strides) {
    shape[axis] = 1;
    return Walk(Layout(shape, strides, 0));
}

std::int64_t product(const Shape& shape, int from, int to) {
    std::int64_t n = 1;
    for (int i = from; i < to; ++i) n *= shape[i];
    return n;
}

}  // namespace

Tensor checked_index(const char* op, const Tensor& index, std::int64_t bound) {
    const std::int64_t n = index.numel();
    if (n == 0) return index;
    if (bound == 0) {
        const Tensor first = index.with_layout(Layout(Shape{}, Strides{}, index.layout().offset));
        raise(index_fault(op, index.shape(), 0, first.item<std::int64_t>(), 0));
    }
    return checked_numbers(index, bound, {}, [=, shape = index.shape()](std::int64_t position, std::int64_t value) {
        return index_fault(op, shape, position, value, bound);
    });
}

void index_select(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    if (y.numel() == 0) return;
    Layout outer, inner;
    for (int i = 0; i < x.rank(); ++i) {
        if (i == axis) continue;
        Layout& part = i < axis ? outer : inner;
        part.shape.push_back(x.size(i)), part.strides.push_back(x.strides()[i]);
    }
    const std::int64_t count = index.numel(), rows = outer.numel() * count;
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        GRADUS_LAUNCH((select_kernel<U>), y.device(), grid_for(rows, threads / 32), threads, 0,
                      static_cast<const U*>(x.address()), Walk(outer), x.strides()[axis], Walk(inner), inner.numel(),
                      index.data<std::int64_t>(), count, static_cast<U*>(y.address()), rows);
    });
}

void index_sum(const Tensor& x, int axis, const Tensor& index, std::int64_t skip, const Tensor& y) {
    if (y.numel() == 0) return;
    const std::int64_t count = index.numel(), bound = y.size(axis), inner = product(y.shape(), axis + 1, y.rank());
    const std::int64_t rows = product(y.shape(), 0, axis) * bound;
    const SortedPositions sorted(index, bound);
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((sum_kernel<T>), y.device(), grid_for(rows, threads / 32), threads, 0, x.data<T>(),
                      sorted.starts.data<std::int64_t>(), sorted.order.data<std::int64_t>(), count, bound, inner, skip,
                      y.data<T>(), rows);
    });
}

void gather(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    if (y.numel() == 0) return;
    Strides strides = x.strides();
    strides[axis] = 0;
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        GRADUS_LAUNCH((gather_kernel<U>), y.device(), grid_for(y.numel(), threads), threads, 0,
                      static_cast<const U*>(x.address()), Walk(Layout(y.shape(), strides, 0)), x.strides()[axis],
                      index.data<std::int64_t>(), static_cast<U*>(y.address()), y.numel());
    });
}

void scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& y) {
    if (index.numel() == 0) return;
    if (y.dtype() == DType::bf16 || y.dtype() == DType::f16) {
        const Tensor wide = Tensor::empty(y.shape(), DType::f32, y.device()),
                     part = Tensor::empty(x.shape(), DType::f32, x.device());
        copy(y, wide), copy(x, part);
        scatter_add(part, axis, index, wide);
        return copy(wide, y);
    }
    const Shape& shape = index.shape();
    const std::int64_t length = shape[axis], lines = index.numel() / length, bound = y.size(axis);
    const std::int64_t step = index.strides()[axis], x_step = x.strides()[axis], y_step = y.strides()[axis];
    const Walk of_x = lines_of(shape, axis, x.strides()), of_index = lines_of(shape, axis, index.strides()),
               of_y = lines_of(shape, axis, y.strides());
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, Wide<T>>) {
            if (lines >= 32 || length <= 1024) {
                GRADUS_LAUNCH((scatter_lines_kernel<T>), y.device(), grid_for(lines, threads), threads, 0, x.data<T>(),
                              of_x, x_step, index.data<std::int64_t>(), of_index, step, y.data<T>(), of_y, y_step,
                              length, lines);
                return;
            }
            for (std::int64_t line = 0; line < lines; ++line) {
                const std::int64_t at = index.layout().offset + of_index.offset(line);
                const Tensor places = Tensor::empty({length}, DType::i64, index.device());
                copy(index.with_layout(Layout(Shape{length}, Strides{step}, at)), places);
                const SortedPositions sorted(places, bound);
                GRADUS_LAUNCH((scatter_places_kernel<T>), y.device(), grid_for(bound, threads), threads, 0,
                              x.data<T>() + of_x.offset(line), x_step, sorted.starts.data<std::int64_t>(),
                              sorted.order.data<std::int64_t>(), y.data<T>() + of_y.offset(line), y_step, bound);
            }
        }
    });
}

void one_hot(const Tensor& index, const Tensor& y) {
    if (y.numel() == 0) return;
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((one_hot_kernel<T>), y.device(), grid_for(y.numel(), threads), threads, 0,
                      index.data<std::int64_t>(), y.size(-1), y.data<T>(), y.numel());
    });
}

}  // namespace gradus::kernels::cuda
