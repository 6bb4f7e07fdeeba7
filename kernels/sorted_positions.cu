// Radix sort by digits of eight bits, the lowest first. Each pass counts the digits of every chunk of 256 positions,
// adds the counts up over (digit, chunk), and moves each position to its place; within a chunk a thread finds its rank
// among equal digits by looking at the threads before it, so that nothing depends on the order in which blocks run.
// Knuth, The Art of Computer Programming, volume 3, section 5.2.5.
#include "gradus/kernels/sorted_positions.cuh"

#include "gradus/kernels/device.cuh"

namespace gradus::kernels::cuda {
namespace {

constexpr int chunk = 256, digits = 256;

__device__ __forceinline__ int digit_of(std::int64_t key, int shift) { return int(key >> shift) & (digits - 1); }

/// counts (digit, chunk): how often each digit stands in each chunk.
__global__ void __launch_bounds__(chunk)
    count_kernel(const std::int64_t* keys, std::int64_t n, int shift, std::int64_t* counts, std::int64_t chunks) {
    GRADUS_SHARED(int, found, [digits]);
    for (std::int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        found[threadIdx.x] = 0;
        __syncthreads();
        const std::int64_t i = c * chunk + threadIdx.x;
        if (i < n) atomicAdd(&found[digit_of(keys[i], shift)], 1);
        __syncthreads();
        counts[std::int64_t(threadIdx.x) * chunks + c] = found[threadIdx.x];
    }
}

/// Each count becomes the sum of those before it: one block, 1,024 at a time.
__global__ void __launch_bounds__(1024) scan_kernel(std::int64_t* counts, std::int64_t n) {
    GRADUS_SHARED(std::int64_t, ends, [32]);
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
    std::int64_t before = 0;
    for (std::int64_t first = 0; first < n; first += blockDim.x) {
        const std::int64_t i = first + threadIdx.x, own = i < n ? counts[i] : 0;
        std::int64_t sum = own;
        for (int o = 1; o < 32; o *= 2) {
            const std::int64_t left = __shfl_up_sync(all_lanes, sum, unsigned(o));
            if (lane >= o) sum += left;
        }
        if (lane == 31) ends[warp] = sum;
        __syncthreads();
        std::int64_t earlier = before, all = before;
        for (int w = 0; w < int(blockDim.x / 32); ++w) {
            if (w < warp) earlier += ends[w];
            all += ends[w];
        }
        if (i < n) counts[i] = earlier + sum - own;
        before = all;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(chunk)
    move_kernel(const std::int64_t* keys, const std::int64_t* positions, std::int64_t n, int shift,
                const std::int64_t* places, std::int64_t chunks, std::int64_t* sorted_keys,
                std::int64_t* sorted_positions) {
    GRADUS_SHARED(int, seen, [chunk]);
    for (std::int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        const std::int64_t i = c * chunk + threadIdx.x;
        const int mine = i < n ? digit_of(keys[i], shift) : -1;
        seen[threadIdx.x] = mine;
        __syncthreads();
        if (i < n) {
            std::int64_t to = places[std::int64_t(mine) * chunks + c];
            for (unsigned t = 0; t < threadIdx.x; ++t) to += seen[t] == mine;
            sorted_keys[to] = keys[i];
            sorted_positions[to] = positions ? positions[i] : i;
        }
        __syncthreads();
    }
}

/// starts[j]: how many keys are below j.
__global__ void __launch_bounds__(256)
    starts_kernel(const std::int64_t* keys, std::int64_t n, std::int64_t* starts, std::int64_t bound) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t j = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; j <= bound; j += step) {
        std::int64_t low = 0, high = n;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (keys[middle] < j)
                low = middle + 1;
            else
                high = middle;
        }
        starts[j] = low;
    }
}

}  // namespace

SortedPositions::SortedPositions(const Tensor& index, std::int64_t bound)
    : starts(Tensor::empty({bound + 1}, DType::i64, index.device())) {
    const Device device = index.device();
    const std::int64_t n = index.numel(), chunks = ceil_div(n, chunk);
    const auto array = [&](std::int64_t count) { return Tensor::empty({count}, DType::i64, device); };
    Tensor keys = index, other_keys = array(n), other_order = array(n);
    const Tensor counts = array(digits * chunks);
    order = array(n);
    bool first = true;
    for (int shift = 0; first || (shift < 63 && (bound - 1) >> shift > 0); shift += 8, first = false) {
        GRADUS_LAUNCH(count_kernel, device, grid_for(chunks, 1), chunk, 0, keys.data<std::int64_t>(), n, shift,
                      counts.data<std::int64_t>(), chunks);
        GRADUS_LAUNCH(scan_kernel, device, 1, unsigned(std::min<std::int64_t>(1024, digits * chunks)), 0,
                      counts.data<std::int64_t>(), digits * chunks);
        GRADUS_LAUNCH(move_kernel, device, grid_for(chunks, 1), chunk, 0, keys.data<std::int64_t>(),
                      first ? nullptr : order.data<std::int64_t>(), n, shift, counts.data<std::int64_t>(), chunks,
                      other_keys.data<std::int64_t>(), other_order.data<std::int64_t>());
        const Tensor free_keys = first ? array(n) : keys;
        keys = other_keys, other_keys = free_keys;
        std::swap(order, other_order);
    }
    GRADUS_LAUNCH(starts_kernel, device, grid_for(bound + 1, 256), 256, 0, keys.data<std::int64_t>(), n,
                  starts.data<std::int64_t>(), bound);
}

}  // namespace gradus::kernels::cuda
