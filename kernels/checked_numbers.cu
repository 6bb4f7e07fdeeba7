#include "gradus/kernels/checked_numbers.cuh"

#include "gradus/kernels/device.cuh"
#include "gradus/kernels/memory.h"

namespace gradus::kernels::cuda {
namespace {

constexpr int threads = 256;

/// found[0] = the smallest position of a wrong number, or -1 as it was.
__global__ void __launch_bounds__(threads)
    check_kernel(const std::int64_t* numbers, std::int64_t n, std::int64_t bound, bool ignoring, std::int64_t ignored,
                 std::int64_t* safe, unsigned long long* found) {
    const std::int64_t step = std::int64_t(gridDim.x) * threads;
    for (std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x; i < n; i += step) {
        const std::int64_t value = numbers[i];
        const bool wrong = std::uint64_t(value) >= std::uint64_t(bound) && !(ignoring && value == ignored);
        safe[i] = wrong ? ignored : value;
        if (wrong) atomicMin(found, static_cast<unsigned long long>(i));
    }
}
/// found[1] = the number at the position found[0].
__global__ void value_kernel(const std::int64_t* numbers, std::int64_t* found) {
    if (found[0] >= 0) found[1] = numbers[found[0]];
}

}  // namespace

Tensor checked_numbers(const Tensor& numbers, std::int64_t bound, std::optional<std::int64_t> ignored,
                       DescribeFault describe) {
    const Device device = numbers.device();
    const Tensor safe = Tensor::empty(numbers.shape(), DType::i64, device);
    const Tensor found = Tensor::empty({2}, DType::i64, device);
    fill(found, -1);
    const auto* from = numbers.data<std::int64_t>();
    GRADUS_LAUNCH(check_kernel, device, grid_for(numbers.numel(), threads), threads, 0, from, numbers.numel(), bound,
                  ignored.has_value(), ignored.value_or(0), safe.data<std::int64_t>(),
                  static_cast<unsigned long long*>(found.address()));
    GRADUS_LAUNCH(value_kernel, device, 1, 1, 0, from, found.data<std::int64_t>());
    watch(found, std::move(describe));
    return safe;
}

}  // namespace gradus::kernels::cuda
