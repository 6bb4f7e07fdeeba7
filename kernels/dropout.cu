// Dropout on a card: eight decisions from each Philox block, the same as the CPU's bit for bit.
//
// Bytes: every element is read and written once; ten Philox rounds for 8 elements are 20 products of 32 bits, so the
// kernel waits for memory: 2 · bytes / bandwidth.
#include "gradus/kernels/dropout.h"

#include "gradus/kernels/device.cuh"

namespace gradus::kernels::cuda {
namespace {

constexpr int decisions = 8;  // 16-bit lanes of a block

template <class T>
__global__ void __launch_bounds__(256)
    dropout_kernel(const T* x, T* y, Draw draw, std::uint32_t threshold, Wide<T> scale, std::int64_t size,
                   std::int64_t blocks, std::int64_t all_blocks) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all_blocks; i += step) {
        const std::int64_t sample = i / blocks, b = i % blocks, first = b * decisions;
        const PhiloxBlock words = draw.block(std::uint64_t(b), std::uint32_t(draw.first_sample + sample));
        const T* from = x + sample * size + first;
        T* to = y + sample * size + first;
#pragma unroll
        for (int k = 0; k < decisions; ++k) {
            const std::uint32_t lane = k % 2 == 0 ? words[k / 2] & 0xffffu : words[k / 2] >> 16;
            if (first + k < size) to[k] = lane >= threshold ? T(Wide<T>(from[k]) * scale) : T(Wide<T>(0));
        }
    }
}

}  // namespace

void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y) {
    const std::int64_t samples = draw.samples == 0 ? 1 : draw.samples, size = x.numel() / samples;
    const std::int64_t blocks = ceil_div(size, decisions);
    visit(x.dtype(), [&]<class T>(T) {
        if constexpr (is_floating(dtype_of<T>))
            GRADUS_LAUNCH((dropout_kernel<T>), y.device(), grid_for(samples * blocks, 256), 256, 0, x.data<T>(),
                          y.data<T>(), draw, dropout_threshold(p), Wide<T>(dropout_scale(p)), size, blocks,
                          samples * blocks);
    });
}

}  // namespace gradus::kernels::cuda
