// What creation, pointwise ops, views and reductions refuse, word for word.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

Tensor f32(const Shape& shape) { return zeros(shape, DType::f32, Device{}); }
Tensor i64(const Shape& shape) { return zeros(shape, DType::i64, Device{}); }
Tensor boolean(const Shape& shape) { return zeros(shape, DType::boolean, Device{}); }

template <class Call>
void refuses(const std::string& wanted, Call call) {
    INFO("wanted: " << wanted);
    CHECK(error_of(call) == wanted);
}

TEST_CASE("two operands that do not broadcast are both named", "[ops][errors]") {
    using Op = Tensor (*)(const Tensor&, const Tensor&);
    const std::vector<std::pair<const char*, Op>> ops = {{"add", add},
                                                         {"sub", sub},
                                                         {"mul", mul},
                                                         {"div", div},
                                                         {"pow", pow},
                                                         {"maximum", maximum},
                                                         {"minimum", minimum},
                                                         {"equal", equal},
                                                         {"not_equal", not_equal},
                                                         {"less", less},
                                                         {"less_equal", less_equal},
                                                         {"greater", greater},
                                                         {"greater_equal", greater_equal}};
    for (const auto& [name, op] : ops)
        CHECK(error_of([op = op] {
                  op(f32({2, 3}), f32({2}));
              }) ==
              text(name,
                   ": shapes do not broadcast: (2, 3) and (2,): sizes must be equal or 1, counted from the last axis"));
    const std::vector<std::pair<const char*, Op>> logic = {
        {"logical_and", logical_and}, {"logical_or", logical_or}, {"logical_xor", logical_xor}};
    for (const auto& [name, op] : logic) {
        CHECK(error_of([op = op] {
                  op(boolean({2, 3}), boolean({2}));
              }) ==
              text(name,
                   ": shapes do not broadcast: (2, 3) and (2,): sizes must be equal or 1, counted from the last axis"));
        CHECK(error_of([op = op] { op(f32({2}), boolean({2})); }) ==
              text(name, ": a must be bool: got f32: compare, or cast to bool"));
        CHECK(error_of([op = op] { op(boolean({2}), i64({2})); }) ==
              text(name, ": b must be bool: got i64: compare, or cast to bool"));
    }
}

TEST_CASE("pointwise ops and selections refuse by name", "[ops][errors]") {
    refuses("neg: does not take bool: use logical_not", [] { neg(boolean({2})); });
    refuses("abs: does not take bool: use cast", [] { abs(boolean({2})); });
    refuses("square: does not take bool: use cast", [] { square(boolean({2})); });
    refuses("logical_not: x must be bool: got f32: compare, or cast to bool", [] { logical_not(f32({2})); });
    refuses("clamp: low 2 is above high 1", [] { clamp(f32({2}), 2, 1); });
    refuses("where: condition must be bool: got f32: compare, or cast to bool",
            [] { where(f32({2}), f32({2}), f32({2})); });
    refuses("where: condition must be bool: got i64: compare, or cast to bool", [] { where(i64({2}), f32({2}), 1.0); });
    refuses("where: shapes do not broadcast: (2,) and (3,): sizes must be equal or 1, counted from the last axis",
            [] { where(boolean({2}), f32({3}), f32({3})); });
    refuses("where: the value -1 does not fit into u8: its range is [0, 255]",
            [] { where(boolean({2}), zeros({2}, DType::u8, Device{}), -1.0); });
    refuses("masked_fill: mask must be bool: got f32: compare, or cast to bool",
            [] { masked_fill(f32({2}), f32({2}), 0); });
    refuses(
        "masked_fill: shapes do not broadcast: (2, 3) and (2,): sizes must be equal or 1, counted from the last axis",
        [] {
            masked_fill(f32({2, 3}), boolean({2}), 0);
        });
    refuses("masked_fill: the value 0.5 is not whole: i64 holds integers only",
            [] { masked_fill(i64({2}), boolean({2}), 0.5); });
    refuses("tril: needs at least two axes: got shape (3,)", [] { tril(f32({3})); });
    refuses("triu: needs at least two axes: got shape ()", [] { triu(f32({})); });
}

TEST_CASE("creation refuses by name", "[ops][errors]") {
    refuses(
        "full: the value 1e+40 does not fit into f32: its range is [-3.4028234663852886e+38, 3.4028234663852886e+38], "
        "or use an infinity",
        [] { full({2}, 1e40, DType::f32, Device{}); });
    refuses("empty: a size is negative: (2, -1)", [] { zeros({2, -1}, DType::f32, Device{}); });
    refuses("arange: start, stop and a step other than 0 must be finite: got 0, 5, 0",
            [] { arange(0, 5, 0, DType::f32, Device{}); });
    refuses("arange: bool holds no range: use an integer dtype", [] { arange(3, DType::boolean, Device{}); });
    refuses("arange: the value 299 does not fit into u8: its range is [0, 255]",
            [] { arange(300, DType::u8, Device{}); });
    refuses("eye: sizes must not be negative: got -1 and 2", [] { eye(-1, 2, DType::f32, Device{}); });
    refuses("uniform: the dtype must be floating: got i64", [] { uniform({2}, 0, 1, DType::i64, Device{}); });
    refuses("uniform: needs finite low <= high: got 2 and 1", [] { uniform({2}, 2, 1, DType::f32, Device{}); });
    refuses("normal: the dtype must be floating: got bool", [] { normal({2}, 0, 1, DType::boolean, Device{}); });
    refuses("normal: needs a finite mean and deviation >= 0: got 0 and -1",
            [] { normal({2}, 0, -1, DType::f32, Device{}); });
}

TEST_CASE("views and copies refuse by name", "[ops][errors]") {
    refuses(
        "view: shape (3, 2) with strides (1, 3) cannot be seen as (6,) without a copy: use reshape, or contiguous "
        "first",
        [] {
            view(transpose(f32({2, 3})), {6});
        });
    refuses("view: (2, 3) holds 6 elements, (4,) holds 4", [] { view(f32({2, 3}), {4}); });
    refuses("reshape: (2, 3) holds 6 elements, (4, 2) holds 8", [] { reshape(f32({2, 3}), {4, 2}); });
    refuses("reshape: only one size may be -1: (-1, -1)", [] { reshape(f32({2, 3}), {-1, -1}); });
    refuses("permute: (0, 0) does not name each axis of (2, 3) once", [] { permute(f32({2, 3}), {0, 0}); });
    refuses("permute: (0,) does not name each axis of (2, 3) once", [] { permute(f32({2, 3}), {0}); });
    refuses("permute: axis 2 is out of range for rank 2", [] { permute(f32({2, 3}), {0, 2}); });
    refuses("transpose: axis -2 is out of range for rank 1", [] { transpose(f32({2})); });
    refuses("slice: axis 2 is out of range for rank 2", [] { slice(f32({2, 3}), 2, 0, 1); });
    refuses("slice: the step must be positive: got -1: use flip to reverse", [] { slice(f32({3}), 0, 0, 3, -1); });
    refuses("select: index 3 is out of range for axis 1 of (2, 3)", [] { select(f32({2, 3}), 1, 3); });
    refuses("select: index -4 is out of range for axis 1 of (2, 3)", [] { select(f32({2, 3}), 1, -4); });
    refuses("expand: cannot expand (2, 3) to (2, 4): only axes of size 1 stretch", [] { expand(f32({2, 3}), {2, 4}); });
    refuses("expand: cannot expand (2, 3) to the lower rank of (3,)", [] { broadcast_to(f32({2, 3}), {3}); });
    refuses("squeeze: axis 1 of (1, 3) has size 3, not 1", [] { squeeze(f32({1, 3}), {1}); });
    refuses("unsqueeze: axis 3 is out of range for rank 3", [] { unsqueeze(f32({2, 3}), 3); });
    refuses("flatten: axis 1 comes after axis 0", [] { flatten(f32({2, 3}), 1, 0); });
    refuses("split: needs at least one part: got 0", [] { split(f32({4}), 0); });
    refuses("split: the sizes add up to 3, axis 0 of (4,) has 4", [] {
        split(f32({4}), std::vector<std::int64_t>{1, 2});
    });
    refuses("split: a size is negative: -1", [] { split(f32({4}), std::vector<std::int64_t>{5, -1}); });
    refuses("chunk: needs at least one part: got -2", [] { chunk(f32({4}), -2); });
    refuses("flip: axis 0 is named twice in (0, -1)", [] { flip(f32({4}), {0, -1}); });
    refuses("cat: needs at least one tensor", [] { cat({}); });
    refuses("cat: shapes differ in more than axis 1: (2, 3) and (3, 3)", [] { cat({f32({2, 3}), f32({3, 3})}, 1); });
    refuses("cat: shapes differ in more than axis 0: (2, 3) and (2,)", [] { cat({f32({2, 3}), f32({2})}); });
    refuses("cat: axis 0 is out of range for rank 0: a 0-d tensor has no axes", [] { cat({f32({}), f32({})}); });
    refuses("stack: needs at least one tensor", [] { stack({}); });
    refuses("stack: shapes differ: (2, 3) and (3, 2)", [] { stack({f32({2, 3}), f32({3, 2})}); });
    refuses("pad: needs a number per axis at each end: the shape is (2, 3), got 1 and 2", [] {
        pad(f32({2, 3}), {1}, {0, 0});
    });
    refuses("pad: axis 0 of (2,) cannot lose 3 elements", [] { pad(f32({2}), {-2}, {-1}); });
    refuses("repeat: needs a count for each axis of (2, 3): got (2,)", [] { repeat(f32({2, 3}), {2}); });
    refuses("copy_: the destination (2, 3) is an expanded view: several indices share one element", [] {
        copy_(expand(f32({1, 3}), {2, 3}), f32({2, 3}));
    });
    refuses("copy_: the source (2, 3) does not fit into (1, 3)", [] { copy_(f32({1, 3}), f32({2, 3})); });
    refuses("fill_: the value 256 does not fit into u8: its range is [0, 255]",
            [] { fill_(zeros({2}, DType::u8, Device{}), 256); });
    refuses("device: cpu:63 does not exist: there are " + std::to_string(device_count(Device::cpu)) +
                " CPU devices: set GRADUS_CPU_DEVICES to have more",
            [] {
                to(f32({2}), Device{Device::cpu, 63});
            });
}

TEST_CASE("reductions refuse by name", "[ops][errors]") {
    using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
    const std::vector<std::pair<const char*, Reduction>> reductions = {
        {"sum", sum},   {"mean", mean},           {"max", max},  {"min", min},
        {"prod", prod}, {"logsumexp", logsumexp}, {"norm", norm}};
    for (const auto& [name, op] : reductions) {
        CHECK(error_of([op = op] {
                  op(f32({2, 3}), {2}, false);
              }) == text(name, ": axis 2 is out of range for rank 2"));
        CHECK(error_of([op = op] {
                  op(f32({2, 3}), {1, -1}, false);
              }) == text(name, ": axis 1 is named twice in (1, -1)"));
    }
    refuses("var: axis 5 is out of range for rank 1", [] { var(f32({2}), {5}); });
    refuses("any: x must be bool: got f32: compare, or cast to bool", [] { any(f32({2})); });
    refuses("all: x must be bool: got i64: compare, or cast to bool", [] { all(i64({2})); });
    refuses("mean: x must be floating: got i64: use cast", [] { mean(i64({2})); });
    refuses("var: x must be floating: got bool: use cast", [] { var(boolean({2})); });
    refuses("logsumexp: x must be floating: got i64: use cast", [] { logsumexp(i64({2})); });
    refuses("norm: x must be floating: got i64: use cast", [] { norm(i64({2})); });
    refuses("max: nothing to choose from: the reduced axes of (2, 0) are empty", [] { max(f32({2, 0}), {1}); });
    refuses("min: nothing to choose from: the reduced axes of (0,) are empty", [] { min(f32({0})); });
    refuses("argmax: axis 2 is out of range for rank 2", [] { argmax(f32({2, 3}), 2); });
    refuses("argmax: nothing to choose from: axis 1 of (2, 0) is empty", [] { argmax(f32({2, 0}), 1); });
    refuses("argmin: nothing to choose from: axis -1 of (2, 0) is empty", [] { argmin(f32({2, 0}), -1); });
    refuses("cumsum: axis 1 is out of range for rank 1", [] { cumsum(f32({2}), 1); });
}

}  // namespace
}  // namespace gradus::tests
