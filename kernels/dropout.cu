// Dropout on a card: eight decisions from each Philox block, the same as the CPU's bit for bit.
//
// Bytes: every element is read and written once. A thread works on 16 bytes, so that neighbours read side by side; it
// draws the whole block for them, in f32 twice as often as needed. Ten rounds of Philox are 20 products of 32 bits,
// which a card has time for while it waits for memory: 2 · bytes / bandwidth.
#include "gradus/kernels/dropout.cuh"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256, decisions = dropout_decisions;

/// Samples of `size` elements, which fill whole vectors.
template <class T>
__global__ void __launch_bounds__(threads) dropout_vectors_kernel(const T* x, T* y, Draw draw, Choice<Wide<T>> choice,
                                                                  std::int64_t size, std::int64_t vectors) {
    constexpr int lanes = vector_lanes<T>;
    const std::int64_t step = std::int64_t(gridDim.x) * threads;
    for (std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x; i < vectors; i += step) {
        const std::int64_t sample = draw.samples > 1 ? i * lanes / size : 0, first = i * lanes - sample * size;
        store16(y + i * lanes, choice.apply(load16(x + i * lanes), draw, first, sample));
    }
}

/// A thread a block of eight.
template <class T>
__global__ void __launch_bounds__(threads)
    dropout_blocks_kernel(const T* x, T* y, Draw draw, Choice<Wide<T>> choice, std::int64_t size, std::int64_t blocks,
                          std::int64_t all_blocks) {
    const std::int64_t step = std::int64_t(gridDim.x) * threads;
    for (std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x; i < all_blocks; i += step) {
        const std::int64_t sample = i / blocks, block = i % blocks, first = block * decisions;
        const PhiloxBlock words = draw.block(std::uint64_t(block), std::uint32_t(draw.first_sample + sample));
        const T* from = x + sample * size + first;
        T* to = y + sample * size + first;
#pragma unroll
        for (int k = 0; k < decisions; ++k)
            if (first + k < size) to[k] = T(choice.apply(Wide<T>(from[k]), words, k));
    }
}

}  // namespace

void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y) {
    const std::int64_t samples = draw.samples == 0 ? 1 : draw.samples, size = x.numel() / samples;
    visit(x.dtype(), [&]<class T>(T) {
        if constexpr (is_floating(dtype_of<T>)) {
            const Choice<Wide<T>> choice(p);
            if (size % vector_lanes<T> == 0 && aligned16(x.address()) && aligned16(y.address())) {
                const std::int64_t vectors = samples * size / vector_lanes<T>;
                GRADUS_LAUNCH((dropout_vectors_kernel<T>), y.device(), grid_for(vectors, threads), threads, 0,
                              x.data<T>(), y.data<T>(), draw, choice, size, vectors);
            } else {
                const std::int64_t blocks = ceil_div(size, decisions), all_blocks = samples * blocks;
                GRADUS_LAUNCH((dropout_blocks_kernel<T>), y.device(), grid_for(all_blocks, threads), threads, 0,
                              x.data<T>(), y.data<T>(), draw, choice, size, blocks, all_blocks);
            }
        }
    });
}

}  // namespace gradus::kernels::cuda
