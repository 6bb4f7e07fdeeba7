// Filling, copying between layouts and dtypes, and drawing random elements on a card.
//
// A copy moves 2 · bytes; its three ways differ in how well they use a transaction of 32 bytes: plain arrays go 16
// bytes a thread, a matrix whose rows become columns goes through a tile in shared memory, anything else element by
// element.
#include "gradus/kernels/memory.h"

#include <cmath>

#include "gradus/kernels/convert.h"
#include "gradus/kernels/device.cuh"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {
namespace {

__device__ __forceinline__ std::int64_t first_item() { return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ std::int64_t item_step() { return std::int64_t(gridDim.x) * blockDim.x; }

// ---- copy ----

/// Bytes as they are, 16 at a time; both addresses are multiples of 16.
__global__ void __launch_bounds__(256) bytes_kernel(const char* x, char* y, std::int64_t bytes) {
    const std::int64_t vectors = bytes / 16;
    for (std::int64_t i = first_item(); i < vectors; i += item_step()) store16(y + i * 16, load16(x + i * 16));
    for (std::int64_t i = vectors * 16 + first_item(); i < bytes; i += item_step()) y[i] = x[i];
}

/// Elements of one size, whatever they mean.
template <class U>
__global__ void __launch_bounds__(256) move_kernel(const U* x, Walk from, U* y, Walk to, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step()) y[to.offset(i)] = x[from.offset(i)];
}

constexpr int tile = 32, tile_rows = 8;

/// y (batch, columns, rows) row-major from x whose rows lie `leading` apart: x(b, i, j) at b · stride + i · leading +
/// j.
template <class U>
__global__ void __launch_bounds__(tile* tile_rows)
    transpose_kernel(const U* x, std::int64_t stride, std::int64_t leading, U* y, std::int64_t rows,
                     std::int64_t columns, std::int64_t tiles_down, std::int64_t tiles_across, std::int64_t tiles) {
    GRADUS_SHARED(U, part, [tile][tile + 1]);
    const int lane = int(threadIdx.x % tile), line = int(threadIdx.x / tile);
    for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const std::int64_t b = t / (tiles_down * tiles_across), inside = t % (tiles_down * tiles_across);
        const std::int64_t row = inside / tiles_across * tile, column = inside % tiles_across * tile;
        const U* from = x + b * stride;
        U* to = y + b * rows * columns;
        for (int i = line; i < tile; i += tile_rows)
            if (row + i < rows && column + lane < columns) part[i][lane] = from[(row + i) * leading + column + lane];
        __syncthreads();
        for (int i = line; i < tile; i += tile_rows)
            if (column + i < columns && row + lane < rows) to[(column + i) * rows + row + lane] = part[lane][i];
        __syncthreads();
    }
}

template <class C>
__global__ void __launch_bounds__(256)
    convert_kernel(const void* x, DType from_type, Walk from, void* y, DType to_type, Walk to, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step())
        store_as<C>(to_type, y, to.offset(i), load_as<C>(from_type, x, from.offset(i)));
}

/// Plain arrays of floats, so many at a time that the wider one takes 16 bytes.
template <class From, class To>
__global__ void __launch_bounds__(256) convert_plain_kernel(const From* x, To* y, std::int64_t n) {
    constexpr int lanes = vector_lanes<std::conditional_t<(sizeof(From) > sizeof(To)), From, To>>;
    const std::int64_t vectors = n / lanes;
    for (std::int64_t v = first_item(); v < vectors; v += item_step()) {
        const auto in = *reinterpret_cast<const Vector<From, lanes>*>(x + v * lanes);
        Vector<To, lanes> out;
#pragma unroll
        for (int l = 0; l < lanes; ++l) out.lane[l] = convert_one<To>(in.lane[l]);
        *reinterpret_cast<Vector<To, lanes>*>(y + v * lanes) = out;
    }
    for (std::int64_t i = vectors * lanes + first_item(); i < n; i += item_step()) y[i] = convert_one<To>(x[i]);
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

/// Is x a batch of matrices read down their columns, and y plain? Then the tile kernel writes it.
bool copy_transposed(const Tensor& x, const Walk& from, const Tensor& y) {
    const int last = from.rank - 1;
    if (from.rank < 2 || from.rank > 3 || from.strides[last - 1] != 1) return false;
    const std::int64_t rows = from.shape[last], columns = from.shape[last - 1], leading = from.strides[last];
    if (rows < tile / 2 || columns < tile / 2 || leading <= 0) return false;
    const std::int64_t batch = from.rank == 3 ? from.shape[0] : 1;
    const std::int64_t down = ceil_div(rows, tile), across = ceil_div(columns, tile), tiles = batch * down * across;
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        GRADUS_LAUNCH((transpose_kernel<U>), y.device(), grid_for(tiles, 1), tile * tile_rows, 0,
                      static_cast<const U*>(x.address()), from.rank == 3 ? from.strides[0] : 0, leading,
                      static_cast<U*>(y.address()), rows, columns, down, across, tiles);
    });
    return true;
}

void copy_same(const Tensor& x, const Tensor& y) {
    const Walk from(x.layout().expand("copy", y.shape())), to(y.layout());
    const std::int64_t n = y.numel();
    if (from.plain && to.plain && aligned16(x.address()) && aligned16(y.address())) {
        const std::int64_t bytes = n * size_of(x.dtype());
        GRADUS_LAUNCH(bytes_kernel, y.device(), grid_for(bytes, 256 * 16), 256, 0,
                      static_cast<const char*>(x.address()), static_cast<char*>(y.address()), bytes);
        return;
    }
    if (to.plain && copy_transposed(x, from, y)) return;
    visit_size(x.dtype(), [&](auto zero) {
        using U = decltype(zero);
        GRADUS_LAUNCH((move_kernel<U>), y.device(), grid_for(n, 256), 256, 0, static_cast<const U*>(x.address()), from,
                      static_cast<U*>(y.address()), to, n);
    });
}

template <class From, class To>
bool convert_plain(const Tensor& x, const Tensor& y) {
    if (x.dtype() != dtype_of<From> || y.dtype() != dtype_of<To>) return false;
    GRADUS_LAUNCH((convert_plain_kernel<From, To>), y.device(), grid_for(y.numel(), 256 * 4), 256, 0, x.data<From>(),
                  y.data<To>(), y.numel());
    return true;
}

}  // namespace

void copy(const Tensor& x, const Tensor& y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    if (x.dtype() == y.dtype()) return copy_same(x, y);
    const Walk from(x.layout().expand("copy", y.shape())), to(y.layout());
    if (from.plain && to.plain && aligned16(x.address()) && aligned16(y.address()) &&
        (convert_plain<float, bfloat16>(x, y) || convert_plain<bfloat16, float>(x, y) ||
         convert_plain<float, float16>(x, y) || convert_plain<float16, float>(x, y)))
        return;
    // Every float is a double, every integer an i64: one kernel for each serves all pairs.
    if (is_floating(x.dtype()))
        GRADUS_LAUNCH((convert_kernel<double>), y.device(), grid_for(n, 256), 256, 0, x.address(), x.dtype(), from,
                      y.address(), y.dtype(), to, n);
    else
        GRADUS_LAUNCH((convert_kernel<std::int64_t>), y.device(), grid_for(n, 256), 256, 0, x.address(), x.dtype(),
                      from, y.address(), y.dtype(), to, n);
}

// ---- fill ----
namespace {

template <class U>
__global__ void __launch_bounds__(256) fill_kernel(U* y, Walk to, U value, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step()) y[to.offset(i)] = value;
}
template <class U>
__global__ void __launch_bounds__(256) fill_plain_kernel(U* y, U value, std::int64_t n) {
    constexpr int lanes = vector_lanes<U>;
    Vector<U> part;
#pragma unroll
    for (int l = 0; l < lanes; ++l) part.lane[l] = value;
    const std::int64_t vectors = n / lanes;
    for (std::int64_t v = first_item(); v < vectors; v += item_step()) store16(y + v * lanes, part);
    for (std::int64_t i = vectors * lanes + first_item(); i < n; i += item_step()) y[i] = value;
}

template <class T>
__global__ void __launch_bounds__(256) arange_kernel(T* y, double start, double step, std::int64_t n) {
    for (std::int64_t i = first_item(); i < n; i += item_step()) {
        const double value = start + double(i) * step;
        if constexpr (is_half_type<T>)
            y[i] = T(float(value));
        else
            y[i] = T(value);
    }
}

}  // namespace

void fill(const Tensor& y, double value) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    const Walk to(y.layout());
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T element = convert_one<T>(value);
        visit_size(y.dtype(), [&](auto unsigned_zero) {
            using U = decltype(unsigned_zero);
            if constexpr (sizeof(U) == sizeof(T)) {
                U* const out = static_cast<U*>(y.address());
                const U bits = std::bit_cast<U>(element);
                if (to.plain && aligned16(out))
                    GRADUS_LAUNCH((fill_plain_kernel<U>), y.device(), grid_for(n, 256 * vector_lanes<U>), 256, 0, out,
                                  bits, n);
                else
                    GRADUS_LAUNCH((fill_kernel<U>), y.device(), grid_for(n, 256), 256, 0, out, to, bits, n);
            }
        });
    });
}

void arange(const Tensor& y, double start, double step) {
    visit(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        GRADUS_LAUNCH((arange_kernel<T>), y.device(), grid_for(y.numel(), 256), 256, 0, y.data<T>(), start, step,
                      y.numel());
    });
}

// ---- random elements: the CPU's formulas, block by block (see kernels/memory.cpp) ----
namespace {

constexpr double two_pi = 6.283185307179586;

struct Uniform {
    double low, high, last;  // last: the largest number below high
    float last_in_f32;

    __device__ double stretched(double u) const { return between(u, low, high, last); }
    __device__ void fill(const PhiloxBlock& words, double* pair) const {
        pair[0] = stretched(to_unit_f64(words[0], words[1])), pair[1] = stretched(to_unit_f64(words[2], words[3]));
    }
    __device__ void fill(const PhiloxBlock& words, float* four) const {
        for (int i = 0; i < 4; ++i) {
            const float x = float(stretched(double(to_unit(words[i]))));
            four[i] = x < last_in_f32 ? x : last_in_f32;
        }
    }
};

struct Normal {
    double mean, deviation;

    __device__ void fill(const PhiloxBlock& words, double* pair) const {
        const double radius = sqrt(-2 * log(to_unit_f64(words[0], words[1])));
        const double angle = two_pi * to_unit_f64(words[2], words[3]);
        pair[0] = mean + deviation * (radius * cos(angle)), pair[1] = mean + deviation * (radius * sin(angle));
    }
    __device__ void fill(const PhiloxBlock& words, float* four) const {
        for (int p = 0; p < 2; ++p) {
            const float radius = sqrtf(-2 * logf(to_unit(words[2 * p])));
            const float angle = float(two_pi) * to_unit(words[2 * p + 1]);
            four[2 * p] = float(mean) + float(deviation) * (radius * cosf(angle));
            four[2 * p + 1] = float(mean) + float(deviation) * (radius * sinf(angle));
        }
    }
};

template <class Numbers, class T>
__global__ void __launch_bounds__(256)
    random_kernel(Numbers numbers, Draw draw, T* y, std::int64_t part, std::int64_t blocks, std::int64_t all_blocks) {
    constexpr int each = int(16 / sizeof(T));  // elements of a Philox block
    for (std::int64_t i = first_item(); i < all_blocks; i += item_step()) {
        const std::int64_t sample = i / blocks, b = i % blocks, first = b * each;
        T drawn[each];
        numbers.fill(draw.block(std::uint64_t(b), std::uint32_t(draw.first_sample + sample)), drawn);
#pragma unroll
        for (int k = 0; k < each; ++k)
            if (first + k < part) y[sample * part + first + k] = drawn[k];
    }
}

template <class Numbers>
void random(const Numbers& numbers, const Tensor& y, const Draw& draw) {
    const std::int64_t samples = draw.samples > 0 ? draw.samples : 1, n = y.numel();
    check(n % samples == 0, "random: ", n, " elements do not divide into the ", samples,
          " samples of the step's batch");
    const std::int64_t part = n / samples;
    if (part == 0) return;
    visit_real(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t blocks = ceil_div(part, std::int64_t(16 / sizeof(T)));
        GRADUS_LAUNCH((random_kernel<Numbers, T>), y.device(), grid_for(samples * blocks, 256), 256, 0, numbers, draw,
                      y.data<T>(), part, blocks, samples * blocks);
    });
}

}  // namespace

void uniform(const Tensor& y, double low, double high, const Draw& draw) {
    random(Uniform{low, high, std::nextafter(high, low), std::nextafter(float(high), float(low))}, y, draw);
}
void normal(const Tensor& y, double mean, double deviation, const Draw& draw) {
    random(Normal{mean, deviation}, y, draw);
}

}  // namespace gradus::kernels::cuda
