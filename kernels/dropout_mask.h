// Dropout's decisions on the CPU: the 16-bit lanes of Philox, 128 at a time, and what they do to a run of elements.
#pragma once

#include <algorithm>

#include "gradus/kernels/dropout.h"
#include "gradus/kernels/philox_lanes.h"
#include "gradus/kernels/zip.h"

namespace gradus::kernels::cpu {

inline constexpr int dropout_group = 128;  ///< decisions of one call: 16 blocks of 8 lanes

/// lane[i]: the 16-bit lanes of the blocks index ... index + 15, in the order of the elements.
inline void draw_lanes(const Draw& draw, std::uint64_t index, std::uint32_t sample,
                       std::uint16_t (&lane)[dropout_group]) {
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
inline void keep_some(const double* x, double* y, const std::uint16_t* lane, std::int64_t n, std::uint32_t threshold,
                      double scale) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = lane[i] >= threshold ? x[i] * scale : 0.0;
}
inline void keep_some(const float* x, float* y, const std::uint16_t* lane, std::int64_t n, std::uint32_t threshold,
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

/// The mask of a draw over elements of which each sample has `size`.
class DropoutMask {
  public:
    DropoutMask(double p, const Draw& draw, std::int64_t numel)
        : draw_(draw),
          size_(numel / std::max<std::int64_t>(draw.samples, 1)),
          threshold_(dropout_threshold(p)),
          scale_(dropout_scale(p)) {}

    /// Elements begin ... end - 1: to[i] = from[i] / (1 - p) or 0; then done(first, count) while they are at hand. Both
    /// arrays start at element 0 and may be the same.
    template <class T, class Done>
    void apply(const T* from, T* to, std::int64_t begin, std::int64_t end, Done done) const {
        std::uint16_t lane[dropout_group];
        for (std::int64_t at = begin; at < end;) {
            const std::int64_t sample = at / size_, first = at % size_, skipped = first % 8;
            const std::int64_t count = std::min({dropout_group - skipped, size_ - first, end - at});
            draw_lanes(draw_, std::uint64_t(first) / 8, std::uint32_t(draw_.first_sample + sample), lane);
            keep_some(from + at, to + at, lane + skipped, count, threshold_, Scale<T>(scale_));
            done(at, count);
            at += count;
        }
    }
    template <class T>
    void apply(const T* from, T* to, std::int64_t begin, std::int64_t end) const {
        apply(from, to, begin, end, [](std::int64_t, std::int64_t) {});
    }

  private:
    template <class T>
    using Scale = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Draw draw_;
    std::int64_t size_;
    std::uint32_t threshold_;
    double scale_;
};

}  // namespace gradus::kernels::cpu
