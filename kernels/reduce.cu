// Reductions over any axes on a card, in an order that the sizes alone decide.
//
// x is seen as (kept, reduced). Rows whose elements lie side by side are reduced by a warp or, in pieces of 65,536, by
// a block each; where the kept axis lies side by side instead, a thread walks down a column, so that neighbours read
// neighbouring addresses. Partial results go through the same kernels once more. Sums and products of floats run in
// f64. Bytes: every element is read once; the partial results are a thousandth of that.
#include "gradus/kernels/reduce.h"

#include <limits>

#include "gradus/kernels/convert.h"
#include "gradus/kernels/device.cuh"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/walk.h"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t piece = 65536;     // elements of a row that one block reduces
constexpr std::int64_t short_row = 1024;  // up to here a warp takes a row
constexpr std::int64_t tall = 128;        // elements of a column that one thread reduces

/// What a reduction does; A is what it accumulates in: double for floats, i64 for integers and bool.
template <Reduce what, class A>
struct Rule {
    GRADUS_FN static A identity() {
        using L = std::numeric_limits<A>;
        if constexpr (what == Reduce::sum) return 0;
        if constexpr (what == Reduce::prod) return 1;
        if constexpr (what == Reduce::max) return L::has_infinity ? -L::infinity() : L::min();
        return L::has_infinity ? L::infinity() : L::max();
    }
    GRADUS_FN static A join(A a, A b) {
        if constexpr (what == Reduce::sum)
            return a + b;
        else if constexpr (what == Reduce::prod)
            return a * b;
        else if constexpr (what == Reduce::max)
            return a > b || a != a ? a : b;
        else
            return a < b || a != a ? a : b;
    }
};

/// x seen as (rows, length).
struct Plan {
    const void* data;
    DType dtype;
    Walk kept, reduced;
    std::int64_t rows, length;

    Plan(const Tensor& x, const Axes& axes) : data(x.address()), dtype(x.dtype()) {
        Layout rest, gone;
        for (int i = 0, a = 0; i < x.rank(); ++i) {
            const bool reduce = a < axes.rank() && axes[a] == i;
            a += reduce;
            Layout& part = reduce ? gone : rest;
            part.shape.push_back(x.shape()[i]), part.strides.push_back(x.strides()[i]);
        }
        rows = rest.numel(), length = gone.numel();
        kept = Walk(rest), reduced = Walk(gone);
    }
    template <class A>
    __device__ A at(std::int64_t start, std::int64_t i) const {
        return load_as<A>(dtype, data, start + reduced.offset(i));
    }
};

/// Where results go: y itself, or partial results of type A.
struct Target {
    void* data;
    DType dtype;
};

template <Reduce what, class A>
__device__ __forceinline__ A warp_join(A v) {
    for (int o = 16; o > 0; o >>= 1) v = Rule<what, A>::join(v, __shfl_xor_sync(all_lanes, v, o));
    return v;
}

/// A warp a row.
template <Reduce what, class A>
__global__ void __launch_bounds__(threads) short_rows_kernel(Plan plan, Target y) {
    const int lane = int(threadIdx.x % 32);
    const std::int64_t warps = std::int64_t(gridDim.x) * (threads / 32);
    for (std::int64_t row = std::int64_t(blockIdx.x) * (threads / 32) + threadIdx.x / 32; row < plan.rows;
         row += warps) {
        const std::int64_t start = plan.kept.offset(row);
        A total = Rule<what, A>::identity();
        for (std::int64_t i = lane; i < plan.length; i += 32) total = Rule<what, A>::join(total, plan.at<A>(start, i));
        total = warp_join<what>(total);
        if (lane == 0) store_as<A>(y.dtype, y.data, row, total);
    }
}

/// A block a piece of a row; result number row · pieces + piece.
template <Reduce what, class A>
__global__ void __launch_bounds__(threads) pieces_kernel(Plan plan, Target y, std::int64_t pieces, std::int64_t count) {
    GRADUS_SHARED(A, scratch, [threads / 32]);
    for (std::int64_t job = blockIdx.x; job < count; job += gridDim.x) {
        const std::int64_t start = plan.kept.offset(job / pieces), begin = job % pieces * piece;
        const std::int64_t end = begin + piece < plan.length ? begin + piece : plan.length;
        A total = Rule<what, A>::identity();
        for (std::int64_t i = begin + threadIdx.x; i < end; i += threads)
            total = Rule<what, A>::join(total, plan.at<A>(start, i));
        total = warp_join<what>(total);
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = total;
        __syncthreads();
        if (threadIdx.x < 32) {
            total = warp_join<what>(threadIdx.x < threads / 32 ? scratch[threadIdx.x] : Rule<what, A>::identity());
            if (threadIdx.x == 0) store_as<A>(y.dtype, y.data, job, total);
        }
        __syncthreads();
    }
}

/// A thread a column and strip of it; result number strip · rows + row.
template <Reduce what, class A>
__global__ void __launch_bounds__(threads) columns_kernel(Plan plan, Target y, std::int64_t count) {
    const std::int64_t step = std::int64_t(gridDim.x) * threads;
    for (std::int64_t job = std::int64_t(blockIdx.x) * threads + threadIdx.x; job < count; job += step) {
        const std::int64_t start = plan.kept.offset(job % plan.rows), begin = job / plan.rows * tall;
        const std::int64_t end = begin + tall < plan.length ? begin + tall : plan.length;
        A total = Rule<what, A>::identity();
        for (std::int64_t i = begin; i < end; ++i) total = Rule<what, A>::join(total, plan.at<A>(start, i));
        store_as<A>(y.dtype, y.data, job, total);
    }
}

template <Reduce what, class A>
void reduce_plan(const Plan& plan, const Tensor& y) {
    const Target out{y.address(), y.dtype()};
    const Device device = y.device();
    const auto partial = [&](Shape shape) { return Tensor::empty(shape, dtype_of<A>, device); };
    const Walk& kept = plan.kept;
    const bool columns = plan.rows > 1 && kept.strides[kept.rank - 1] == 1 && !plan.reduced.plain && plan.length > 1;
    if (columns) {
        const std::int64_t strips = ceil_div(plan.length, tall), count = strips * plan.rows;
        const Tensor sums = strips > 1 ? partial({strips, plan.rows}) : Tensor();
        const Target to = strips > 1 ? Target{sums.address(), sums.dtype()} : out;
        GRADUS_LAUNCH((columns_kernel<what, A>), device, grid_for(count, threads), threads, 0, plan, to, count);
        if (strips > 1) reduce_plan<what, A>(Plan(sums, Axes{0}), y);
        return;
    }
    if (plan.length <= short_row) {
        GRADUS_LAUNCH((short_rows_kernel<what, A>), device, grid_for(plan.rows, threads / 32), threads, 0, plan, out);
        return;
    }
    const std::int64_t pieces = ceil_div(plan.length, piece), count = pieces * plan.rows;
    const Tensor sums = pieces > 1 ? partial({plan.rows, pieces}) : Tensor();
    const Target to = pieces > 1 ? Target{sums.address(), sums.dtype()} : out;
    GRADUS_LAUNCH((pieces_kernel<what, A>), device, grid_for(count, 1), threads, 0, plan, to, pieces, count);
    if (pieces > 1) reduce_plan<what, A>(Plan(sums, Axes{1}), y);
}

template <Reduce what>
void reduce_by_type(const Tensor& x, const Axes& axes, const Tensor& y) {
    const Plan plan(x, axes);
    if (plan.rows == 0) return;
    if (plan.length == 0 && !is_floating(x.dtype()))  // of integers only bool has an empty extreme
        return fill(y, what == Reduce::prod || what == Reduce::min ? 1 : 0);
    if (is_floating(x.dtype()))
        reduce_plan<what, double>(plan, y);
    else
        reduce_plan<what, std::int64_t>(plan, y);
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

// ---- where the extreme is ----
namespace {

template <class A>
struct Best {
    A value;
    std::int64_t index;  // -1: none

    __device__ bool before(Best other, bool largest) const {
        if (index < 0 || other.index < 0) return index >= 0;
        const bool nan = value != value, other_nan = other.value != other.value;
        if (nan || other_nan) return nan && (!other_nan || index < other.index);
        if (value != other.value) return largest ? value > other.value : value < other.value;
        return index < other.index;
    }
};

/// A block a row; short rows leave most of it idle, which a reading of n elements does not notice.
template <class A>
__global__ void __launch_bounds__(threads) arg_extreme_kernel(bool largest, Plan plan, std::int64_t* y) {
    GRADUS_SHARED(A, values, [threads / 32]);
    GRADUS_SHARED(std::int64_t, places, [threads / 32]);
    const int warps = int(blockDim.x / 32);
    for (std::int64_t row = blockIdx.x; row < plan.rows; row += gridDim.x) {
        const std::int64_t start = plan.kept.offset(row);
        Best<A> best{A(0), -1};
        for (std::int64_t i = threadIdx.x; i < plan.length; i += blockDim.x) {
            const Best<A> here{plan.at<A>(start, i), i};
            if (here.before(best, largest)) best = here;
        }
        for (int o = 16; o > 0; o /= 2) {
            const A value = __shfl_xor_sync(all_lanes, best.value, o);
            const std::int64_t index = __shfl_xor_sync(all_lanes, best.index, o);
            const Best<A> other{value, index};
            if (other.before(best, largest)) best = other;
        }
        if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best.value, places[threadIdx.x / 32] = best.index;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < warps; ++w) {
                const Best<A> other{values[w], places[w]};
                if (other.before(best, largest)) best = other;
            }
            y[row] = best.index;
        }
        __syncthreads();
    }
}

/// A block a row, 256 elements at a time: sums within a warp, over the warps, and what came before.
template <class A>
__global__ void __launch_bounds__(threads) cumsum_kernel(Plan from, Plan to, void* y) {
    GRADUS_SHARED(A, ends, [threads / 32]);
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
    for (std::int64_t row = blockIdx.x; row < from.rows; row += gridDim.x) {
        const std::int64_t start = from.kept.offset(row), target = to.kept.offset(row);
        A before = 0;
        for (std::int64_t first = 0; first < from.length; first += threads) {
            const std::int64_t i = first + threadIdx.x;
            A sum = i < from.length ? from.at<A>(start, i) : A(0);
            for (int o = 1; o < 32; o *= 2) {
                const A left = __shfl_up_sync(all_lanes, sum, unsigned(o));
                if (lane >= o) sum += left;
            }
            if (lane == 31) ends[warp] = sum;
            __syncthreads();
            A earlier = before, all = before;
            for (int w = 0; w < threads / 32; ++w) {
                if (w < warp) earlier += ends[w];
                all += ends[w];
            }
            if (i < from.length) store_as<A>(to.dtype, y, target + to.reduced.offset(i), earlier + sum);
            before = all;
            __syncthreads();
        }
    }
}

}  // namespace

void arg_extreme(bool largest, const Tensor& x, int axis, const Tensor& y) {
    const Plan plan(x, Axes{axis});
    const unsigned block = plan.length <= short_row ? 32 : threads;
    if (is_floating(x.dtype()))
        GRADUS_LAUNCH((arg_extreme_kernel<double>), y.device(), grid_for(plan.rows, 1), block, 0, largest, plan,
                      y.data<std::int64_t>());
    else
        GRADUS_LAUNCH((arg_extreme_kernel<std::int64_t>), y.device(), grid_for(plan.rows, 1), block, 0, largest, plan,
                      y.data<std::int64_t>());
}

void cumsum(const Tensor& x, int axis, const Tensor& y) {
    const Plan from(x, Axes{axis}), to(y, Axes{axis});
    if (is_floating(x.dtype()))
        GRADUS_LAUNCH((cumsum_kernel<double>), y.device(), grid_for(from.rows, 1), threads, 0, from, to, y.address());
    else
        GRADUS_LAUNCH((cumsum_kernel<std::int64_t>), y.device(), grid_for(from.rows, 1), threads, 0, from, to,
                      y.address());
}

}  // namespace gradus::kernels::cuda
