// One block of attention: up to 64 queries along lanes, up to 64 keys along rows, and what hides or drops a score in
// it.
#pragma once

#include <algorithm>
#include <memory>
#include <new>

#include "gradus/kernels/attention.h"
#include "gradus/kernels/dropout.h"
#include "gradus/kernels/philox_lanes.h"
#include "gradus/kernels/row.h"
#include "gradus/kernels/small_product.h"

namespace gradus::kernels {

inline constexpr std::int64_t block_size = 64;

/// Memory of one thread that only grows, cut into aligned parts.
class Scratch {
  public:
    ~Scratch() { size_ = 0; }  // a loop during static destruction finds it empty, not gone
    template <class T>
    T* part(std::int64_t count) {
        const std::size_t bytes = (std::size_t(count) * sizeof(T) + 63) / 64 * 64;
        char* p = data_.get() + used_;
        used_ += bytes;
        return reinterpret_cast<T*>(p);
    }
    /// Starts over with room for this many bytes beside the padding of `parts` parts.
    void open(std::size_t bytes, int parts) {
        used_ = 0;
        bytes += std::size_t(parts) * 64;
        if (bytes <= size_) return;
        data_.reset(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
        size_ = bytes;
    }

  private:
    struct Free {
        void operator()(char* p) const { ::operator delete(p, std::align_val_t(64)); }
    };
    std::unique_ptr<char, Free> data_;
    std::size_t size_ = 0, used_ = 0;
};

/// One head of a (B, H, rows, n) tensor.
template <class T>
struct Head {
    T* data = nullptr;
    std::int64_t rows = 0, n = 0, stride = 0;

    Head() = default;
    Head(const Tensor& x, std::int64_t b, std::int64_t h)
        : data(x.data<std::remove_const_t<T>>() + b * x.strides()[0] + h * x.strides()[1]),
          rows(x.size(2)),
          n(x.size(3)),
          stride(x.strides()[2]) {}
    T* row(std::int64_t i) const { return data + i * stride; }
};

template <class T>
std::int64_t padded(std::int64_t n) {
    return (n + lanes<T> - 1) / lanes<T> * lanes<T>;
}

/// Rows of a head, times factor, side by side; each is filled up with zeros to whole packs.
template <class T>
void gather_rows(const Head<const T>& x, std::int64_t first, std::int64_t count, T factor, T* to) {
    const std::int64_t width = padded<T>(x.n);
    for (std::int64_t i = 0; i < count; ++i, to += width) {
        const T* row = x.row(first + i);
        std::int64_t d = 0;
        for (; d + lanes<T> <= x.n; d += lanes<T>) store(to + d, load(row + d) * factor);
        if (d < x.n) store(to + d, load_part(row + d, int(x.n - d)) * factor);
    }
}

template <class T>
void spread_rows(const T* from, std::int64_t count, T factor, const Head<T>& x, std::int64_t first) {
    const std::int64_t width = padded<T>(x.n);
    for (std::int64_t i = 0; i < count; ++i, from += width) {
        T* row = x.row(first + i);
        std::int64_t d = 0;
        for (; d + lanes<T> <= x.n; d += lanes<T>) store(row + d, load(from + d) * factor);
        if (d < x.n) store_part(row + d, load(from + d) * factor, int(x.n - d));
    }
}

/// A block of scores: score(key j, query i) at [j * width + i].
struct Block {
    std::int64_t b, h;                   // which head
    std::int64_t query, queries, width;  // first, how many, lanes they fill (a multiple of 16)
    std::int64_t key, keys;
};

/// Writes -inf over hidden scores and adds the additive mask.
template <class T>
void hide(const Attention& a, const Block& at, T* score) {
    const Pack<T> low = math::k<Pack<T>>(-INFINITY);
    if (a.mask.defined()) {
        const Strides& s = a.mask.strides();
        const auto* seen = static_cast<const std::uint8_t*>(a.mask.address()) + at.b * s[0] + at.h * s[1] +
                           at.query * s[2] + at.key * s[3];
        for (std::int64_t j = 0; j < at.keys; ++j) {
            T* row = score + j * at.width;
            const std::uint8_t* p = seen + j * s[3];
            if (s[2] == 0) {
                if (!*p) std::fill_n(row, at.width, T(-INFINITY));
            } else {
                for (std::int64_t i = 0; i < at.queries; ++i) row[i] = p[i * s[2]] ? row[i] : T(-INFINITY);
            }
        }
    }
    if (a.additive.defined()) {
        const Strides& s = a.additive.strides();
        const T* added = a.additive.data<T>() + at.b * s[0] + at.h * s[1] + at.query * s[2] + at.key * s[3];
        for (std::int64_t j = 0; j < at.keys; ++j)
            for (std::int64_t i = 0; i < at.queries; ++i) {
                const T bias = added[i * s[2] + j * s[3]];
                T& x = score[j * at.width + i];
                x = bias == T(-INFINITY) ? bias : x + bias;
            }
    }
    if (!a.causal) return;
    const std::int64_t ahead = a.k.size(2) - a.q.size(2);
    if (at.key + at.keys - 1 <= at.query + ahead) return;  // all of it lies in the past
    Pack<T> number{};
    for (int i = 0; i < lanes<T>; ++i) number[i] = T(i);
    for (std::int64_t j = 0; j < at.keys; ++j) {
        const std::int64_t first = at.key + j - ahead - at.query;  // the first lane that sees this key
        for (std::int64_t i = 0; i < at.width && i < first; i += lanes<T>) {
            T* p = score + j * at.width + i;
            store(p, math::select(number >= math::k<Pack<T>>(double(first - i)), load(p), low));
        }
    }
}

/// factor(key j, query i): 1 / (1 - p) where the weight is kept, 0 where it is dropped. `factor` has room for 15 more
/// rows. A weight's element number in its sample is ((h T + t) S + s), or with B / samples batches a sample, counted
/// through them.
template <class T>
void draw_factors(const Attention& a, const Block& at, T* factor) {
    const std::int64_t B = a.q.size(0), H = a.q.size(1), queries = a.q.size(2), keys = a.k.size(2);
    const std::int64_t per_sample = a.draw.samples == 0 ? B : B / a.draw.samples;
    const std::uint32_t sample = std::uint32_t(a.draw.first_sample + at.b / per_sample);
    const std::uint64_t start = std::uint64_t((((at.b % per_sample) * H + at.h) * queries + at.query) * keys + at.key);
    const std::int32_t threshold = std::int32_t(dropout_threshold(a.dropout));
    const T scale = a.dropout < 1 ? T(dropout_scale(a.dropout)) : T(0);
    const bool aligned = keys % 8 == 0 && start % 8 == 0;
    for (std::int64_t i = 0; i < at.width; i += 16) {
        // Lane r draws for query i + r. Each query's row starts at another place of its first block: `shift` rows too
        // early.
        std::int32_t shift[16];
        std::uint64_t block[16];
        for (int r = 0; r < 16; ++r) {
            const std::uint64_t e = start + std::uint64_t((i + r) * keys);
            shift[r] = std::int32_t(e % 8), block[r] = e / 8;
        }
        const std::int64_t drawn = (at.keys + (aligned ? 0 : 7) + 7) / 8;
        for (std::int64_t c = 0; c < drawn; ++c) {
            const PhiloxLanes lane = philox_lanes(a.draw, block, std::uint64_t(c), sample);
            for (int w = 0; w < 8; ++w) {
                const u32x16 word = w % 2 == 0 ? lane.word[w / 2] & 0xffffu : lane.word[w / 2] >> 16;
                i32x16 number;
                std::memcpy(&number, &word, sizeof word);
                const i32x16 kept = number >= threshold;
                T* to = factor + (c * 8 + w) * at.width + i;
                if constexpr (std::is_same_v<T, float>) {
                    store(to, math::as_float(kept & math::as_int(f32x16{} + scale)));
                } else {
                    for (int r = 0; r < 16; ++r) to[r] = kept[r] ? scale : T(0);
                }
            }
        }
        if (aligned) continue;
        // Moves each lane up by its shift, bit by bit, so that row j is key j again.
        i32x16 shifts;
        std::memcpy(&shifts, shift, sizeof shifts);
        for (std::int32_t bit = 4, rows = 7; bit > 0; rows -= bit, bit /= 2) {
            const i32x16 moved = (shifts & bit) != 0;
            for (std::int64_t j = 0; j < at.keys + rows - bit; ++j) {
                T* to = factor + j * at.width + i;
                const T* from = to + bit * at.width;
                if constexpr (std::is_same_v<T, float>) {
                    store(to, math::select(moved, load(from), load(to)));
                } else {
                    for (int r = 0; r < 16; ++r) to[r] = moved[r] ? from[r] : to[r];
                }
            }
        }
    }
}

}  // namespace gradus::kernels
