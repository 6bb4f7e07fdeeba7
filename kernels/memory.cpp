#include "gradus/kernels/memory.h"

#include <cmath>
#include <cstring>

#include "gradus/kernels/elementwise.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels::cpu {
namespace {

template <class E>
void same_formula(const void* const* in, void* out, std::int64_t n) {
    std::memcpy(out, in[0], std::size_t(n) * sizeof(E));
}

}  // namespace

void copy(const Tensor& x, const Tensor& y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    if (x.dtype() == y.dtype() && y.is_contiguous()) {  // straight into the target
        const Walk walk(x.layout().expand("copy", y.shape()));
        const int size = size_of(x.dtype());
        const char* source = static_cast<const char*>(x.address());
        char* target = static_cast<char*>(y.address());
        return parallel_for(n, 32 * chunk, [&](std::int64_t begin, std::int64_t end) {
            gather(walk, source, size, begin, end - begin, target + begin * size);
        });
    }
    const Operand inputs[] = {x};
    if (x.dtype() == y.dtype()) {  // bits as they are: a NaN keeps its payload
        const Formula formulas[] = {same_formula<std::uint8_t>, same_formula<std::uint16_t>,
                                    same_formula<std::uint32_t>, same_formula<std::uint64_t>};
        const int size = size_of(x.dtype());
        return elementwise(formulas[size == 1   ? 0
                                    : size == 2 ? 1
                                    : size == 4 ? 2
                                                : 3],
                           x.dtype(), x.dtype(), inputs, y);
    }
    const Formula formula = size_of(y.dtype()) == 8   ? same_formula<std::uint64_t>
                            : size_of(y.dtype()) == 4 ? same_formula<std::uint32_t>
                            : size_of(y.dtype()) == 2 ? same_formula<std::uint16_t>
                                                      : same_formula<std::uint8_t>;
    elementwise(formula, y.dtype(), y.dtype(), inputs, y);
}

void fill(const Tensor& y, double value) {
    if (y.is_contiguous() && value == 0 && !std::signbit(value)) {
        char* base = static_cast<char*>(y.address());
        return parallel_for(y.numel() * size_of(y.dtype()), 1 << 18, [&](std::int64_t begin, std::int64_t end) {
            std::memset(base + begin, 0, std::size_t(end - begin));
        });
    }
    // In the dtype itself, so that a large i64 is not rounded twice.
    const Formula formula = size_of(y.dtype()) == 8   ? same_formula<std::uint64_t>
                            : size_of(y.dtype()) == 4 ? same_formula<std::uint32_t>
                            : size_of(y.dtype()) == 2 ? same_formula<std::uint16_t>
                                                      : same_formula<std::uint8_t>;
    const Operand inputs[] = {value};
    elementwise(formula, y.dtype(), y.dtype(), inputs, y);
}

void arange(const Tensor& y, double start, double step) {
    visit(y.dtype(), [&](auto zero) {
        using E = decltype(zero);
        E* out = y.data<E>();
        for (std::int64_t i = 0; i < y.numel(); ++i) {
            const double value = start + double(i) * step;
            if constexpr (std::is_same_v<E, bfloat16> || std::is_same_v<E, float16>)
                out[i] = E(float(value));
            else
                out[i] = E(value);
        }
    });
}

namespace {

/// Calls element(index in y, sample, index within the sample) block by block: `per_block` elements share one Philox
/// block.
template <class Block>
void for_blocks(const Tensor& y, const Draw& draw, std::int64_t per_block, Block&& block) {
    const std::int64_t samples = draw.samples > 0 ? draw.samples : 1, n = y.numel();
    check(n % samples == 0, "random: ", n, " elements do not divide into the ", samples,
          " samples of the step's batch");
    const std::int64_t part = n / samples;
    if (part == 0) return;
    const std::int64_t blocks = (part + per_block - 1) / per_block;
    parallel_for(samples * blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t sample = i / blocks, b = i % blocks, first = b * per_block;
            block(draw.block(std::uint64_t(b), std::uint32_t(draw.first_sample + sample)), sample * part + first,
                  std::min(per_block, part - first));
        }
    });
}

constexpr double two_pi = 6.283185307179586;

}  // namespace

void uniform(const Tensor& y, double low, double high, const Draw& draw) {
    const double last = std::nextafter(high, low);
    const auto stretched = [=](double u) { return between(u, low, high, last); };
    if (y.dtype() == DType::f64) {
        double* out = y.data<double>();
        return for_blocks(y, draw, 2, [&](const PhiloxBlock& words, std::int64_t at, std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i)
                out[at + i] = stretched(to_unit_f64(words[std::size_t(2 * i)], words[std::size_t(2 * i + 1)]));
        });
    }
    float* out = y.data<float>();
    const float below = std::nextafter(float(high), float(low));
    for_blocks(y, draw, 4, [&](const PhiloxBlock& words, std::int64_t at, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i)
            out[at + i] = std::min(float(stretched(double(to_unit(words[std::size_t(i)])))), below);
    });
}

void normal(const Tensor& y, double mean, double deviation, const Draw& draw) {
    if (y.dtype() == DType::f64) {
        double* out = y.data<double>();
        return for_blocks(y, draw, 2, [&](const PhiloxBlock& words, std::int64_t at, std::int64_t n) {
            const double radius = std::sqrt(-2 * std::log(to_unit_f64(words[0], words[1]))),
                         angle = two_pi * to_unit_f64(words[2], words[3]);
            const double pair[] = {radius * std::cos(angle), radius * std::sin(angle)};
            for (std::int64_t i = 0; i < n; ++i) out[at + i] = mean + deviation * pair[i];
        });
    }
    float* out = y.data<float>();
    for_blocks(y, draw, 4, [&](const PhiloxBlock& words, std::int64_t at, std::int64_t n) {
        float four[4];
        for (std::size_t p = 0; p < 2; ++p) {
            const float radius = std::sqrt(-2 * std::log(to_unit(words[2 * p]))),
                        angle = float(two_pi) * to_unit(words[2 * p + 1]);
            four[2 * p] = radius * std::cos(angle), four[2 * p + 1] = radius * std::sin(angle);
        }
        for (std::int64_t i = 0; i < n; ++i) out[at + i] = float(mean) + float(deviation) * four[i];
    });
}

}  // namespace gradus::kernels::cpu
