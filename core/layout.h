// Where an element lies: shape, strides and offset, as pure arithmetic that never touches data.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradus {

inline constexpr int max_rank = 8;

/// Up to eight sizes (or strides, or axes), held inline. Size 0 and rank 0 are legal.
class Dims {
  public:
    Dims() = default;
    Dims(std::initializer_list<std::int64_t> sizes)
        : Dims(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
    explicit Dims(std::span<const std::int64_t> sizes);
    Dims(const std::vector<std::int64_t>& sizes) : Dims(std::span<const std::int64_t>(sizes)) {}
    static Dims filled(int rank, std::int64_t value);

    int rank() const { return rank_; }
    std::int64_t operator[](int i) const { return sizes_[i]; }
    std::int64_t& operator[](int i) { return sizes_[i]; }
    const std::int64_t* begin() const { return sizes_; }
    const std::int64_t* end() const { return sizes_ + rank_; }
    std::int64_t back() const { return sizes_[rank_ - 1]; }
    void push_back(std::int64_t size);
    void insert(int at, std::int64_t size);
    void erase(int at);
    std::int64_t product() const;  ///< 1 for rank 0
    bool operator==(const Dims& other) const;

  private:
    std::int64_t sizes_[max_rank] = {};
    int rank_ = 0;
};
using Shape = Dims;
using Strides = Dims;  ///< in elements
using Axes = Dims;     ///< negative ones count from the end

std::string to_string(const Dims& dims);  ///< "(2, 3)", "(3,)", "()"

/// Checks an axis against a rank and makes a negative one positive: -1 is the last.
int normal_axis(const char* op, std::int64_t axis, int rank);
/// The same for several axes, sorted; twice the same is an error. No axes at all means every axis.
Axes normal_axes(const char* op, const Axes& axes, int rank);

Strides row_major(const Shape& shape);

/// Throws unless every size is at least 0 and the element count fits into 63 bits.
void check_shape(const char* op, const Shape& shape);

/// The shape both operands stretch to: aligned at the right, where one has size 1 or no axis at all.
Shape broadcast(const char* op, const Shape& a, const Shape& b);

struct Layout {
    Shape shape;
    Strides strides;
    std::int64_t offset = 0;  ///< of the first element, in elements

    Layout() = default;
    explicit Layout(const Shape& s) : shape(s), strides(row_major(s)) {}
    Layout(const Shape& s, const Strides& t, std::int64_t o) : shape(s), strides(t), offset(o) {}

    int rank() const { return shape.rank(); }
    std::int64_t numel() const { return shape.product(); }
    bool contiguous() const;  ///< row-major without gaps (strides of axes of size 1 do not matter)
    bool overlaps() const;    ///< may two indices share an element? (exact for expanded views, safe otherwise)

    Layout permute(const Axes& order) const;
    Layout slice(int axis, std::int64_t start, std::int64_t length, std::int64_t step) const;
    Layout expand(const char* op, const Shape& target) const;
    /// The same elements under another shape without moving them, where the strides allow it.
    std::optional<Layout> view(const Shape& target) const;
};

/// Fills in the one -1 of a wanted shape and checks the element count.
Shape resolve_shape(const char* op, const Shape& from, const Shape& wanted);

}  // namespace gradus
