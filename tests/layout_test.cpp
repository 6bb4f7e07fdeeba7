// Layouts: shapes, strides and views as arithmetic, against a plain walk over indices.
#include "gradus/core/layout.h"
#include "gradus/core/error.h"
#include "gradus/tests/reference.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

using reference::Sizes;

/// Where each element lies, in row-major order of the indices.
std::vector<std::int64_t> places(const Layout& layout) {
    const Sizes shape(layout.shape.begin(), layout.shape.end());
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < reference::count(shape); ++i) {
        const Sizes index = reference::index_of(i, shape);
        std::int64_t at = layout.offset;
        for (std::size_t a = 0; a < index.size(); ++a) at += index[a] * layout.strides[int(a)];
        all.push_back(at);
    }
    return all;
}

TEST_CASE("dims print as Python tuples and hold at most eight sizes", "[core]") {
    CHECK(to_string(Dims{}) == "()");
    CHECK(to_string(Dims{3}) == "(3,)");
    CHECK(to_string(Dims{2, 0, -1}) == "(2, 0, -1)");
    CHECK(Dims{}.product() == 1);
    CHECK(Dims{4, 0, 5}.product() == 0);
    CHECK(error_of([] { Dims(std::vector<std::int64_t>(9, 1)); }) == "shape: rank 9 is more than the limit of 8");
    Dims full = Dims::filled(8, 1);
    CHECK(error_of([&] { full.push_back(1); }) == "shape: a rank above the limit of 8 would result");
}

TEST_CASE("dims insert and erase in the middle", "[core]") {
    Dims dims{1, 3};
    dims.insert(1, 2);
    CHECK(dims == Dims{1, 2, 3});
    dims.erase(0);
    CHECK(dims == Dims{2, 3});
    CHECK_FALSE(dims == Dims{2});
}

TEST_CASE("axes count from the end, and errors name axis and rank", "[core]") {
    CHECK(normal_axis("sum", -1, 3) == 2);
    CHECK(normal_axis("sum", 0, 3) == 0);
    CHECK(error_of([] { normal_axis("sum", 3, 3); }) == "sum: axis 3 is out of range for rank 3");
    CHECK(error_of([] { normal_axis("sum", -4, 3); }) == "sum: axis -4 is out of range for rank 3");
    CHECK(error_of([] { normal_axis("sum", 0, 0); }) ==
          "sum: axis 0 is out of range for rank 0: a 0-d tensor has no axes");
    CHECK(normal_axes("sum", {-1, 0}, 3) == Axes{0, 2});
    CHECK(normal_axes("sum", {}, 2) == Axes{0, 1});
    CHECK(error_of([] { normal_axes("sum", {0, -2}, 2); }) == "sum: axis 0 is named twice in (0, -2)");
}

TEST_CASE("shapes broadcast aligned at the right", "[core]") {
    CHECK(broadcast("add", {2, 1}, {3}) == Shape{2, 3});
    CHECK(broadcast("add", {}, {4, 5}) == Shape{4, 5});
    CHECK(broadcast("add", {1}, {2, 0, 3}) == Shape{2, 0, 3});
    CHECK(broadcast("add", {0}, {1}) == Shape{0});
    CHECK(error_of([] {
              broadcast("add", {2, 3}, {2});
          }) == "add: shapes do not broadcast: (2, 3) and (2,): sizes must be equal or 1, counted from the last axis");
    CHECK(contains(error_of([] { broadcast("add", {0}, {2}); }), "add: shapes do not broadcast: (0,) and (2,)"));
}

TEST_CASE("row-major strides step over what is inside", "[core]") {
    CHECK(row_major({2, 3, 4}) == Strides{12, 4, 1});
    CHECK(row_major({}) == Strides{});
    CHECK(Layout({2, 3, 4}).contiguous());
    CHECK(Layout({2, 0, 4}).contiguous());
    CHECK(Layout(Shape{}).contiguous());
    CHECK(Layout({1, 5}, {77, 1}, 3).contiguous());
    CHECK_FALSE(Layout({3, 2}, {1, 3}, 0).contiguous());
}

TEST_CASE("permute, slice and expand move indices as written", "[core]") {
    const Layout x({2, 3, 4});
    CHECK(places(x.permute({2, 0, 1})) == std::vector<std::int64_t>{0, 4, 8,  12, 16, 20, 1, 5, 9,  13, 17, 21,
                                                                    2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23});
    CHECK(places(x.slice(2, 1, 2, 2).slice(0, 1, 1, 1)) == std::vector<std::int64_t>{13, 15, 17, 19, 21, 23});
    const Layout stretched = Layout({2, 1}).expand("expand", {3, 2, 2});
    CHECK(places(stretched) == std::vector<std::int64_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1});
    CHECK(error_of([&] {
              x.expand("expand", {2, 3, 5});
          }) == "expand: cannot expand (2, 3, 4) to (2, 3, 5): only axes of size 1 stretch");
    CHECK(error_of([&] {
              x.expand("expand", {3, 4});
          }) == "expand: cannot expand (2, 3, 4) to the lower rank of (3, 4)");
}

TEST_CASE("a layout knows whether two indices share an element", "[core]") {
    CHECK_FALSE(Layout({2, 3}).overlaps());
    CHECK_FALSE(Layout({2, 3}).permute({1, 0}).overlaps());
    CHECK_FALSE(Layout({4, 4}).slice(1, 1, 2, 2).overlaps());
    CHECK(Layout({1, 3}).expand("expand", {2, 3}).overlaps());
    CHECK(Layout({3, 3}, {1, 1}, 0).overlaps());
    CHECK_FALSE(Layout({1, 1}, {0, 0}, 0).overlaps());
}

TEST_CASE("a view exists exactly where no element has to move", "[core]") {
    // Every shape of 24 elements against every permutation and slice of a few layouts: a view must show the same
    // places.
    const std::vector<Shape> targets = {{24},      {4, 6},  {6, 4},  {2, 12},      {3, 8},  {2, 3, 4}, {4, 3, 2},
                                        {2, 2, 6}, {1, 24}, {24, 1}, {2, 2, 3, 2}, {12, 2}, {8, 3},    {1, 4, 1, 6}};
    const std::vector<Axes> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int views = 0, refusals = 0;
    for (const Layout& base :
         {Layout({2, 3, 4}), Layout({4, 3, 4}).slice(0, 1, 2, 2), Layout({2, 3, 8}).slice(2, 1, 4, 2)})
        for (const Axes& order : orders) {
            const Layout from = base.permute(order);
            for (const Shape& target : targets) {
                INFO(to_string(from.shape) << " strides " << to_string(from.strides) << " as " << to_string(target));
                const std::optional<Layout> found = from.view(target);
                found ? ++views : ++refusals;
                if (found) CHECK(places(*found) == places(from));
                if (target == from.shape) CHECK(found.has_value());
                if (from.contiguous()) CHECK(found.has_value());
            }
        }
    CHECK(views > 50);
    CHECK(refusals > 50);
}

TEST_CASE("a reshape is resolved before anything moves", "[core]") {
    CHECK(resolve_shape("reshape", {2, 6}, {3, -1}) == Shape{3, 4});
    CHECK(resolve_shape("reshape", {0, 3}, {3, -1}) == Shape{3, 0});
    CHECK(error_of([] { resolve_shape("reshape", {2, 6}, {-1, -1}); }) == "reshape: only one size may be -1: (-1, -1)");
    CHECK(error_of([] { resolve_shape("reshape", {2, 6}, {5, -1}); }) == "reshape: (2, 6) does not fit into (5, -1)");
    CHECK(error_of([] {
              resolve_shape("reshape", {0, 3}, {0, -1});
          }) == "reshape: (0, 3) does not fit into (0, -1): -1 is ambiguous beside a size of 0");
    CHECK(error_of([] { resolve_shape("reshape", {2, 6}, {5}); }) == "reshape: (2, 6) holds 12 elements, (5,) holds 5");
    CHECK(error_of([] { resolve_shape("reshape", {2, 6}, {-2, 6}); }) == "reshape: a size is negative: (-2, 6)");
}

}  // namespace
}  // namespace gradus::tests
