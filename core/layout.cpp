#include "gradus/core/layout.h"

#include <algorithm>

#include "gradus/core/error.h"

namespace gradus {

Dims::Dims(std::span<const std::int64_t> sizes) {
    check(sizes.size() <= max_rank, "shape: rank ", sizes.size(), " is more than the limit of ", max_rank);
    std::copy(sizes.begin(), sizes.end(), sizes_);
    rank_ = int(sizes.size());
}

Dims Dims::filled(int rank, std::int64_t value) {
    Dims dims;
    for (int i = 0; i < rank; ++i) dims.push_back(value);
    return dims;
}

void Dims::push_back(std::int64_t size) { insert(rank_, size); }

void Dims::insert(int at, std::int64_t size) {
    check(rank_ < max_rank, "shape: a rank above the limit of ", max_rank, " would result");
    for (int i = rank_; i > at; --i) sizes_[i] = sizes_[i - 1];
    sizes_[at] = size;
    ++rank_;
}

void Dims::erase(int at) {
    for (int i = at; i + 1 < rank_; ++i) sizes_[i] = sizes_[i + 1];
    --rank_;
}

std::int64_t Dims::product() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
}

bool Dims::operator==(const Dims& other) const {
    return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string to_string(const Dims& dims) {
    std::string s = "(";
    for (int i = 0; i < dims.rank(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
    return s + (dims.rank() == 1 ? ",)" : ")");
}

int normal_axis(const char* op, std::int64_t axis, int rank) {
    check(axis >= -rank && axis < rank, op, ": axis ", axis, " is out of range for rank ", rank,
          rank == 0 ? ": a 0-d tensor has no axes" : "");
    return int(axis < 0 ? axis + rank : axis);
}

Axes normal_axes(const char* op, const Axes& axes, int rank) {
    Axes normal;
    if (axes.rank() == 0) {
        for (int i = 0; i < rank; ++i) normal.push_back(i);
        return normal;
    }
    for (const std::int64_t axis : axes) normal.push_back(normal_axis(op, axis, rank));
    std::int64_t* first = &normal[0];
    std::sort(first, first + normal.rank());
    for (int i = 1; i < normal.rank(); ++i)
        check(normal[i] != normal[i - 1], op, ": axis ", normal[i], " is named twice in ", axes);
    return normal;
}

Strides row_major(const Shape& shape) {
    Strides strides = shape;
    std::int64_t step = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        strides[i] = step;
        step *= std::max<std::int64_t>(shape[i], 1);
    }
    return strides;
}

void check_shape(const char* op, const Shape& shape) {
    std::int64_t n = 1;
    for (const std::int64_t size : shape) {
        check(size >= 0, op, ": a size is negative: ", shape);
        check(!__builtin_mul_overflow(n, std::max<std::int64_t>(size, 1), &n) && n <= (std::int64_t(1) << 60), op,
              ": too many elements: ", shape);
    }
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
    const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
    Shape out = longer;
    const int shift = longer.rank() - shorter.rank();
    for (int i = 0; i < shorter.rank(); ++i) {
        const std::int64_t x = longer[i + shift], y = shorter[i];
        check(x == y || x == 1 || y == 1, op, ": shapes do not broadcast: ", a, " and ", b,
              ": sizes must be equal or 1, counted from the last axis");
        out[i + shift] = x == 1 ? y : x;
    }
    return out;
}

bool Layout::contiguous() const {
    std::int64_t step = 1;
    for (int i = rank() - 1; i >= 0; --i) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != step) return false;
        step *= shape[i];
    }
    return true;
}

bool Layout::overlaps() const {
    if (numel() <= 1) return false;
    // Sorted by stride, each axis must step over everything the smaller ones reach.
    std::pair<std::int64_t, std::int64_t> axes[max_rank];
    int n = 0;
    for (int i = 0; i < rank(); ++i)
        if (shape[i] != 1) axes[n++] = {std::abs(strides[i]), shape[i]};
    std::sort(axes, axes + n);
    std::int64_t reach = 0;
    for (int i = 0; i < n; ++i) {
        if (axes[i].first <= reach) return true;
        reach += axes[i].first * (axes[i].second - 1);
    }
    return false;
}

Layout Layout::permute(const Axes& order) const {
    Layout out = *this;
    for (int i = 0; i < rank(); ++i) out.shape[i] = shape[int(order[i])], out.strides[i] = strides[int(order[i])];
    return out;
}

Layout Layout::slice(int axis, std::int64_t start, std::int64_t length, std::int64_t step) const {
    Layout out = *this;
    if (length > 0) out.offset += start * strides[axis];
    out.shape[axis] = length;
    out.strides[axis] = strides[axis] * step;
    return out;
}

Layout Layout::expand(const char* op, const Shape& target) const {
    check(target.rank() >= rank(), op, ": cannot expand ", shape, " to the lower rank of ", target);
    Layout out(target, Strides::filled(target.rank(), 0), offset);
    const int shift = target.rank() - rank();
    for (int i = 0; i < rank(); ++i) {
        const std::int64_t size = target[i + shift];
        check(shape[i] == size || shape[i] == 1, op, ": cannot expand ", shape, " to ", target,
              ": only axes of size 1 stretch");
        out.strides[i + shift] = shape[i] == size ? strides[i] : 0;
    }
    return out;
}

std::optional<Layout> Layout::view(const Shape& target) const {
    if (contiguous()) return Layout(target, row_major(target), offset);
    if (numel() == 0) return Layout(target, row_major(target), offset);
    // Group the old axes into runs that step evenly; each run must be split by whole new axes.
    Layout out(target, Strides::filled(target.rank(), 0), offset);
    Dims old_shape, old_strides;
    for (int i = 0; i < rank(); ++i)
        if (shape[i] != 1) old_shape.push_back(shape[i]), old_strides.push_back(strides[i]);
    int at = old_shape.rank() - 1;
    std::int64_t run = 1, step = 1;
    if (at >= 0) {
        run = old_shape[at], step = old_strides[at];
        for (; at > 0 && old_strides[at - 1] == old_shape[at] * old_strides[at]; --at) run *= old_shape[at - 1];
        --at;
    }
    for (int i = target.rank() - 1; i >= 0; --i) {
        if (target[i] == 1) {
            out.strides[i] = step;
            continue;
        }
        if (run == 1) {
            if (at < 0) return std::nullopt;
            run = old_shape[at], step = old_strides[at];
            for (; at > 0 && old_strides[at - 1] == old_shape[at] * old_strides[at]; --at) run *= old_shape[at - 1];
            --at;
        }
        if (run % target[i] != 0) return std::nullopt;
        out.strides[i] = step;
        run /= target[i], step *= target[i];
    }
    return out;
}

Shape resolve_shape(const char* op, const Shape& from, const Shape& wanted) {
    Shape out = wanted;
    int open = -1;
    std::int64_t known = 1;
    for (int i = 0; i < wanted.rank(); ++i) {
        if (wanted[i] == -1) {
            check(open < 0, op, ": only one size may be -1: ", wanted);
            open = i;
        } else {
            check(wanted[i] >= 0, op, ": a size is negative: ", wanted);
            check(!__builtin_mul_overflow(known, wanted[i], &known), op, ": too many elements: ", wanted);
        }
    }
    if (open >= 0) {
        check(known != 0 && from.product() % known == 0, op, ": ", from, " does not fit into ", wanted,
              known == 0 ? ": -1 is ambiguous beside a size of 0" : "");
        out[open] = from.product() / known;
    }
    check_shape(op, out);
    check(out.product() == from.product(), op, ": ", from, " holds ", from.product(), " elements, ", wanted, " holds ",
          out.product());
    return out;
}

}  // namespace gradus
