#include "gradus/kernels/dropout.h"

#include "gradus/kernels/parallel.h"
#include "gradus/kernels/philox_lanes.h"
#include "gradus/kernels/zip.h"

namespace gradus::kernels::cpu {
namespace {

constexpr int group = 128;  ///< decisions of one call: 16 blocks of 8 lanes

/// lane[i]: the 16-bit lanes of the blocks index ... index + 15, in the order of the elements.
void draw_lanes(const Draw& draw, std::uint64_t index, std::uint32_t sample, std::uint16_t (&lane)[group]) {
    static constexpr std::uint64_t first[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const PhiloxLanes drawn = philox_lanes(draw, first, index, sample);
    // Word w of block b belongs at 4 b + w; a word's lower half comes first in memory.
    const auto packed = [&](int w) { return math::as_float(i32x16(drawn.word[w])); };
    const f32x16 even[2] = {zip_low(packed(0), packed(2)), zip_high(packed(0), packed(2))};
    const f32x16 odd[2] = {zip_low(packed(1), packed(3)), zip_high(packed(1), packed(3))};
    for (int half = 0; half < 2; ++half) {
        const f32x16 first_blocks = zip_low(even[half], odd[half]), last_blocks = zip_high(even[half], odd[half]);
        std::memcpy(lane + half * 64, &first_blocks, sizeof first_blocks);
        std::memcpy(lane + half * 64 + 32, &last_blocks, sizeof last_blocks);
    }
}

template <class T>
void keep_some(const T* x, T* y, const std::uint16_t* lane, std::int64_t n, std::uint32_t threshold, float scale) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = lane[i] >= threshold ? T(float(x[i]) * scale) : T(0.0f);
}
void keep_some(const double* x, double* y, const std::uint16_t* lane, std::int64_t n, std::uint32_t threshold,
               double scale) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = lane[i] >= threshold ? x[i] * scale : 0.0;
}
void keep_some(const float* x, float* y, const std::uint16_t* lane, std::int64_t n, std::uint32_t threshold,
               float scale) {
    const i32x16 limit = i32x16{} + std::int32_t(threshold);
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        u16x16 drawn;
        std::memcpy(&drawn, lane + i, sizeof drawn);
        const i32x16 kept = __builtin_convertvector(drawn, i32x16) >= limit;
        // A mask of bits, not a factor of 0: what is dropped is 0 even where x is infinite.
        store(y + i, math::as_float(math::as_int(load(x + i) * scale) & kept));
    }
    for (; i < n; ++i) y[i] = lane[i] >= threshold ? x[i] * scale : 0.0f;
}

}  // namespace

void dropout(const Tensor& x, double p, const Draw& draw, const Tensor& y) {
    const std::int64_t samples = draw.samples == 0 ? 1 : draw.samples, size = x.numel() / samples;
    const std::int64_t groups = (size + group - 1) / group;  // of one sample
    const std::uint32_t threshold = dropout_threshold(p);
    const double scale = dropout_scale(p);
    visit(x.dtype(), [&]<class T>(T) {
        if constexpr (is_floating(dtype_of<T>)) {
            const T* from = x.data<T>();
            T* to = y.data<T>();
            parallel_for(samples * groups, 64, [&](std::int64_t begin, std::int64_t end) {
                std::uint16_t lane[group];
                for (std::int64_t i = begin; i < end; ++i) {
                    const std::int64_t sample = i / groups, first = i % groups * group, at = sample * size + first;
                    draw_lanes(draw, std::uint64_t(first) / 8, std::uint32_t(draw.first_sample + sample), lane);
                    keep_some(from + at, to + at, lane, std::min<std::int64_t>(group, size - first), threshold, scale);
                }
            });
        }
    });
}

}  // namespace gradus::kernels::cpu
