// The upper rungs: a block computes a tile of y, each thread a square of it in registers.
//
// Per step of 16 along k a tile of 128 x 128 reads 2 · 128 · 16 elements from memory, once, and 64 products a thread
// use each pair of fragments: 16 loads from shared memory (4 of 16 bytes) for 64 multiply-adds, so the arithmetic, not
// shared memory, is the limit. While one buffer is multiplied, the next tile is on its way to registers and then to the
// other buffer; so one barrier a step is enough. A thread's rows (and columns) lie in groups of four, 64 apart, so that
// the lanes of a warp read neighbouring 16 bytes. Tiles go round in blocks that stay (a grid as large as the card).
// Boehm's worklog of SGEMM on CUDA describes the same ladder.
#include "gradus/kernels/matmul/product.cuh"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256, depth = 16, padding = 4;

/// Brings tiles of `size` x 16 elements of one side from memory to registers and on to shared memory, where they lie as
/// [k][r]. V elements at a time: along k where that is how they lie in memory, else along r.
template <class T, int size, int V, bool along_k>
class Loader {
  public:
    using A = Accumulator<T>;
    using Buffer = A (&)[depth][size + padding];
    static constexpr int passes = size * depth / V / threads;

    __device__ Loader(const Side<T>& side, std::int64_t item, std::int64_t first, std::int64_t count)
        : data_(side.data + side.batch.offset(item)), r_stride_(side.r_stride), k_stride_(side.k_stride) {
#pragma unroll
        for (int p = 0; p < passes; ++p) inside_[p] = first + row(p) < count;
        data_ += first * r_stride_;
    }
    /// The tile whose k starts at `k`; elements from `end` on, and rows beyond the matrix, are 0.
    __device__ void load(std::int64_t k, std::int64_t end) {
#pragma unroll
        for (int p = 0; p < passes; ++p) {
            const T* from = data_ + row(p) * r_stride_ + (k + step(p)) * k_stride_;
            if (inside_[p] && k + step(p) < end) {
                if constexpr (V > 1)
                    held_[p] = *reinterpret_cast<const Vector<T, V>*>(from);
                else
                    held_[p].lane[0] = *from;
            } else {
#pragma unroll
                for (int l = 0; l < V; ++l) held_[p].lane[l] = T(0);
            }
        }
    }
    __device__ void store(Buffer buffer) const {
#pragma unroll
        for (int p = 0; p < passes; ++p)
#pragma unroll
            for (int l = 0; l < V; ++l)
                buffer[step(p) + (along_k ? l : 0)][row(p) + (along_k ? 0 : l)] = A(held_[p].lane[l]);
    }

  private:
    static constexpr int pieces_k = along_k ? depth / V : depth, pieces_r = along_k ? size : size / V;
    static __device__ int piece(int p) { return p * threads + int(threadIdx.x); }
    static __device__ int row(int p) { return along_k ? piece(p) / pieces_k : piece(p) % pieces_r * V; }
    static __device__ int step(int p) { return along_k ? piece(p) % pieces_k * V : piece(p) / pieces_r; }
    const T* data_;
    std::int64_t r_stride_, k_stride_;
    bool inside_[passes];
    Vector<T, V> held_[passes];
};

/// Blocks that a multiprocessor shall hold: as many as the registers allow without spills.
template <int size, class A>
[[maybe_unused]] constexpr int resident = size == 64 && sizeof(A) == 4 ? 3 : 1;

template <class T, int size, int V, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(threads, resident<size, Accumulator<T>>)
    register_kernel(Product<T> p, std::int64_t across, std::int64_t down, std::int64_t tiles) {
    using A = Accumulator<T>;
    constexpr int side = size / 16, groups = side / 4;  // a thread's square is side x side
    GRADUS_SHARED(A, left, [2][depth][size + padding]);
    GRADUS_SHARED(A, right, [2][depth][size + padding]);
    const int x = int(threadIdx.x % 16) * 4, y = int(threadIdx.x / 16) * 4;
    for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const std::int64_t column = t % across * size, row = t / across % down * size,
                           item = t / across / down % p.batch;
        const int part = int(t / across / down / p.batch);
        const std::int64_t begin = p.k_begin(part), end = p.k_end(part);
        Loader<T, size, V, a_along_k> a(p.a, item, row, p.m);
        Loader<T, size, V, b_along_k> b(p.b, item, column, p.n);
        A sum[side][side] = {};
        a.load(begin, end), b.load(begin, end);
        a.store(left[0]), b.store(right[0]);
        __syncthreads();
        int now = 0;
        for (std::int64_t k = begin; k < end; k += depth, now ^= 1) {
            const bool more = k + depth < end;
            if (more) a.load(k + depth, end), b.load(k + depth, end);
#pragma unroll
            for (int q = 0; q < depth; ++q) {
                A u[side], v[side];
#pragma unroll
                for (int g = 0; g < groups; ++g)
#pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        u[g * 4 + l] = left[now][q][g * 64 + y + l];
                        v[g * 4 + l] = right[now][q][g * 64 + x + l];
                    }
#pragma unroll
                for (int i = 0; i < side; ++i)
#pragma unroll
                    for (int j = 0; j < side; ++j) sum[i][j] += u[i] * v[j];
            }
            if (more) a.store(left[now ^ 1]), b.store(right[now ^ 1]);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < side; ++i)
#pragma unroll
            for (int j = 0; j < side; ++j) {
                const std::int64_t r = row + i / 4 * 64 + y + i % 4, c = column + j / 4 * 64 + x + j % 4;
                if (r < p.m && c < p.n) p.store(part, item, r, c, sum[i][j]);
            }
    }
}

/// May this side be read V elements at a time along the direction in which it lies?
template <class T, int V>
bool aligned(const Side<T>& side, std::int64_t r, std::int64_t k, bool along_k) {
    const std::int64_t length = along_k ? k : r, stride = along_k ? side.r_stride : side.k_stride;
    bool batches = true;
    for (int i = 0; i < side.batch.rank; ++i)
        batches = batches && (side.batch.shape[i] == 1 || side.batch.strides[i] % V == 0);
    return (along_k ? side.k_stride : side.r_stride) == 1 && length % V == 0 && stride % V == 0 && batches &&
           aligned16(side.data);
}

template <class T, int size, int V, bool a_along_k, bool b_along_k>
void start(const Product<T>& p, Device device) {
    const std::int64_t across = ceil_div(p.n, size), down = ceil_div(p.m, size);
    const std::int64_t tiles = p.parts * p.batch * across * down;
    GRADUS_LAUNCH((register_kernel<T, size, V, a_along_k, b_along_k>), device, grid_for(tiles, 1), threads, 0, p,
                  across, down, tiles);
}

template <class T, int size, int V>
void start_any(const Product<T>& p, bool a_along_k, bool b_along_k, Device device) {
    if (a_along_k && b_along_k)
        start<T, size, V, true, true>(p, device);
    else if (a_along_k)
        start<T, size, V, true, false>(p, device);
    else if (b_along_k)
        start<T, size, V, false, true>(p, device);
    else
        start<T, size, V, false, false>(p, device);
}

template <class T, int size>
void start_size(const Product<T>& p, Device device) {
    const bool a_along_k = p.a.k_stride == 1, b_along_k = p.b.k_stride == 1;
    if constexpr (std::is_same_v<T, float>)
        if (aligned<T, 4>(p.a, p.m, p.k, a_along_k) && aligned<T, 4>(p.b, p.n, p.k, b_along_k))
            return start_any<T, size, 4>(p, a_along_k, b_along_k, device);
    start_any<T, size, 1>(p, a_along_k, b_along_k, device);
}

}  // namespace

template <class T>
void multiply_registers(const Product<T>& p, Rung rung, Device device) {
    if constexpr (sizeof(Accumulator<T>) == 4)
        if (rung == Rung::register_128) return start_size<T, 128>(p, device);
    start_size<T, 64>(p, device);
}

template void multiply_registers(const Product<float>&, Rung, Device);
template void multiply_registers(const Product<double>&, Rung, Device);
template void multiply_registers(const Product<bfloat16>&, Rung, Device);
template void multiply_registers(const Product<float16>&, Rung, Device);

}  // namespace gradus::kernels::cuda
