// A layout as a kernel walks it: axes merged as far as the strides allow; by value, for every device.
#pragma once

#include <bit>
#include <cstdint>

#include "gradus/core/annotations.h"
#include "gradus/core/layout.h"

namespace gradus::kernels {

/// Division of numbers below 2^31 by a constant as a product and a shift. Granlund, Montgomery: "Division by invariant
/// integers using multiplication" (PLDI 1994).
struct Divisor {
    Divisor() = default;
    explicit Divisor(std::uint32_t d) : shift(d == 1 ? 0 : 32 - unsigned(std::countl_zero(d - 1))) {
        magic = std::uint32_t(((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - d)) / d + 1);
    }
    GRADUS_FN std::uint32_t quotient(std::uint32_t n) const {
        return (std::uint32_t((std::uint64_t(n) * magic) >> 32) + n) >> shift;
    }
    std::uint32_t magic = 1, shift = 0;
};

/// At least one axis, none of size 1 (but a single one).
struct Walk {
    Walk() : Walk(Layout(Shape{1})) {}
    explicit Walk(const Layout& layout) : rank(0) {
        for (int i = 0; i < layout.rank(); ++i) {
            const std::int64_t size = layout.shape[i], stride = layout.strides[i];
            if (size == 1) continue;
            if (rank > 0 && strides[rank - 1] == stride * size) {
                shape[rank - 1] *= size, strides[rank - 1] = stride;
            } else {
                shape[rank] = size, strides[rank] = stride, ++rank;
            }
        }
        if (rank == 0) shape[0] = 1, strides[0] = 1, rank = 1;
        plain = rank == 1 && strides[0] == 1;
        const std::int64_t count = layout.numel();
        small = count > 0 && count <= INT32_MAX;
        if (small)
            for (int i = 0; i < rank; ++i) divisors[i] = Divisor(std::uint32_t(shape[i]));
    }
    /// Where the element with this row-major number lies, in elements from the first one.
    GRADUS_FN std::int64_t offset(std::int64_t index) const {
        if (plain) return index;
        std::int64_t at = 0;
        if (small) {
            std::uint32_t left = std::uint32_t(index);
            for (int i = rank - 1; i > 0; --i) {
                const std::uint32_t rest = divisors[i].quotient(left);
                at += std::int64_t(left - rest * std::uint32_t(shape[i])) * strides[i];
                left = rest;
            }
            return at + std::int64_t(left) * strides[0];
        }
        for (int i = rank - 1; i > 0; --i) {
            const std::int64_t rest = index / shape[i];
            at += (index - rest * shape[i]) * strides[i];
            index = rest;
        }
        return at + index * strides[0];
    }

    int rank;
    bool plain;  ///< one run of stride 1
    bool small;  ///< fewer than 2^31 elements: no 64-bit divisions
    std::int64_t shape[max_rank], strides[max_rank];
    Divisor divisors[max_rank];
};

}  // namespace gradus::kernels
