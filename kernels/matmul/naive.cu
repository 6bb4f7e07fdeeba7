// The lower rungs: a thread an element, from memory, and through tiles in shared memory. They are the yardstick for
// those above: of 2 m n k flops the first reads 8 bytes for every 2, the second 8 bytes for every 32.
#include "gradus/kernels/matmul/product.cuh"

namespace gradus::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(256) naive_kernel(Product<T> p, std::int64_t count) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t e = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < count; e += step) {
        const std::int64_t j = e % p.n, i = e / p.n % p.m, item = e / p.n / p.m % p.batch;
        const int part = int(e / p.n / p.m / p.batch);
        const T* a = p.a.data + p.a.batch.offset(item) + i * p.a.r_stride;
        const T* b = p.b.data + p.b.batch.offset(item) + j * p.b.r_stride;
        Accumulator<T> sum = 0;
        for (std::int64_t k = p.k_begin(part); k < p.k_end(part); ++k)
            sum += Accumulator<T>(a[k * p.a.k_stride]) * Accumulator<T>(b[k * p.b.k_stride]);
        p.store(part, item, i, j, sum);
    }
}

constexpr int tile = 16;

template <class T>
__global__ void __launch_bounds__(tile* tile)
    tiled_kernel(Product<T> p, std::int64_t across, std::int64_t down, std::int64_t tiles) {
    using A = Accumulator<T>;
    GRADUS_SHARED(A, left, [tile][tile + 1]);
    GRADUS_SHARED(A, right, [tile][tile + 1]);
    const int x = int(threadIdx.x % tile), y = int(threadIdx.x / tile);
    for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const std::int64_t column = t % across * tile, row = t / across % down * tile,
                           item = t / across / down % p.batch;
        const int part = int(t / across / down / p.batch);
        const T *a = p.a.data + p.a.batch.offset(item), *b = p.b.data + p.b.batch.offset(item);
        const std::int64_t i = row + y, j = column + x, end = p.k_end(part);
        A sum = 0;
        for (std::int64_t k = p.k_begin(part); k < end; k += tile) {
            left[y][x] = i < p.m && k + x < end ? A(a[i * p.a.r_stride + (k + x) * p.a.k_stride]) : A(0);
            right[y][x] = j < p.n && k + y < end ? A(b[j * p.b.r_stride + (k + y) * p.b.k_stride]) : A(0);
            __syncthreads();
#pragma unroll
            for (int q = 0; q < tile; ++q) sum += left[y][q] * right[q][x];
            __syncthreads();
        }
        if (i < p.m && j < p.n) p.store(part, item, i, j, sum);
    }
}

template <class T>
__global__ void __launch_bounds__(256) join_kernel(Product<T> p, std::int64_t count) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t e = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < count; e += step) {
        Accumulator<T> sum = p.workspace[e];
        for (int part = 1; part < p.parts; ++part) sum += p.workspace[part * count + e];
        p.finish(e, e % p.n, sum);
    }
}

}  // namespace

template <class T>
void multiply_naive(const Product<T>& p, Device device) {
    const std::int64_t count = p.parts * p.batch * p.m * p.n;
    GRADUS_LAUNCH((naive_kernel<T>), device, grid_for(count, 256), 256, 0, p, count);
}

template <class T>
void multiply_tiled(const Product<T>& p, Device device) {
    const std::int64_t across = ceil_div(p.n, tile), down = ceil_div(p.m, tile);
    const std::int64_t tiles = p.parts * p.batch * across * down;
    GRADUS_LAUNCH((tiled_kernel<T>), device, grid_for(tiles, 1), tile * tile, 0, p, across, down, tiles);
}

template <class T>
void join_parts(const Product<T>& p, Device device) {
    const std::int64_t count = p.batch * p.m * p.n;
    GRADUS_LAUNCH((join_kernel<T>), device, grid_for(count, 256), 256, 0, p, count);
}

#define GRADUS_INSTANCES(T)                                  \
    template void multiply_naive(const Product<T>&, Device); \
    template void multiply_tiled(const Product<T>&, Device); \
    template void join_parts(const Product<T>&, Device);
GRADUS_INSTANCES(float)
GRADUS_INSTANCES(double)
GRADUS_INSTANCES(bfloat16)
GRADUS_INSTANCES(float16)
GRADUS_INSTANCES(std::int64_t)
GRADUS_INSTANCES(std::int32_t)
GRADUS_INSTANCES(std::uint8_t)
#undef GRADUS_INSTANCES

}  // namespace gradus::kernels::cuda
