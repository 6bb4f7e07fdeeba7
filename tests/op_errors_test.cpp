// What ops refuse, word for word, and that no op crashes on undefined tensors or mixes devices.
#include <cmath>
#include <cstdlib>

#include "gradus/autograd/node.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

// Three logical CPU devices for this program, unless the environment says otherwise; read before main by nobody.
[[maybe_unused]] const int more_devices = setenv("GRADUS_CPU_DEVICES", "3", 0);

Tensor f32(const Shape& shape) { return zeros(shape, DType::f32, Device{}); }
Tensor i64(const Shape& shape) { return zeros(shape, DType::i64, Device{}); }
Tensor boolean(const Shape& shape) { return zeros(shape, DType::boolean, Device{}); }
Tensor ids(std::initializer_list<std::int64_t> values) { return Tensor::from(values, Device{}); }

struct Refusal {
    std::string wanted;
    std::function<void()> call;
};
void check_all(const std::vector<Refusal>& refusals) {
    for (const Refusal& refusal : refusals) {
        INFO(refusal.wanted);
        CHECK(error_of(refusal.call) == refusal.wanted);
    }
}

bool second_device() {
    if (device_count(Device::cpu) >= 2) return true;
    WARN("not run: GRADUS_CPU_DEVICES is 1");
    return false;
}
const Device other{Device::cpu, 1};

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
    check_all({
        {"neg: does not take bool: use logical_not", [] { neg(boolean({2})); }},
        {"abs: does not take bool: use cast", [] { abs(boolean({2})); }},
        {"square: does not take bool: use cast", [] { square(boolean({2})); }},
        {"logical_not: x must be bool: got f32: compare, or cast to bool", [] { logical_not(f32({2})); }},
        {"clamp: low 2 is above high 1", [] { clamp(f32({2}), 2, 1); }},
        {"where: condition must be bool: got f32: compare, or cast to bool",
         [] { where(f32({2}), f32({2}), f32({2})); }},
        {"where: condition must be bool: got i64: compare, or cast to bool", [] { where(i64({2}), f32({2}), 1.0); }},
        {"where: shapes do not broadcast: (2,) and (3,): sizes must be equal or 1, counted from the last axis",
         [] { where(boolean({2}), f32({3}), f32({3})); }},
        {"where: the value -1 does not fit into u8: its range is [0, 255]",
         [] { where(boolean({2}), zeros({2}, DType::u8, Device{}), -1.0); }},
        {"masked_fill: mask must be bool: got f32: compare, or cast to bool",
         [] { masked_fill(f32({2}), f32({2}), 0); }},
        {"masked_fill: shapes do not broadcast: (2, 3) and (2,): sizes must be equal or 1, counted from the last axis",
         [] {
             masked_fill(f32({2, 3}), boolean({2}), 0);
         }},
        {"masked_fill: the value 0.5 is not whole: i64 holds integers only",
         [] { masked_fill(i64({2}), boolean({2}), 0.5); }},
        {"tril: needs at least two axes: got shape (3,)", [] { tril(f32({3})); }},
        {"triu: needs at least two axes: got shape ()", [] { triu(f32({})); }},
    });
}

TEST_CASE("creation refuses by name", "[ops][errors]") {
    check_all({
        {"full: the value 1e+40 does not fit into f32: its range is [-3.4028234663852886e+38, 3.4028234663852886e+38], "
         "or use "
         "an infinity",
         [] { full({2}, 1e40, DType::f32, Device{}); }},
        {"empty: a size is negative: (2, -1)",
         [] {
             zeros({2, -1}, DType::f32, Device{});
         }},
        {"arange: start, stop and a step other than 0 must be finite: got 0, 5, 0",
         [] { arange(0, 5, 0, DType::f32, Device{}); }},
        {"arange: bool holds no range: use an integer dtype", [] { arange(3, DType::boolean, Device{}); }},
        {"arange: the value 299 does not fit into u8: its range is [0, 255]", [] { arange(300, DType::u8, Device{}); }},
        {"eye: sizes must not be negative: got -1 and 2", [] { eye(-1, 2, DType::f32, Device{}); }},
        {"uniform: the dtype must be floating: got i64", [] { uniform({2}, 0, 1, DType::i64, Device{}); }},
        {"uniform: needs finite low <= high: got 2 and 1", [] { uniform({2}, 2, 1, DType::f32, Device{}); }},
        {"normal: the dtype must be floating: got bool", [] { normal({2}, 0, 1, DType::boolean, Device{}); }},
        {"normal: needs a finite mean and deviation >= 0: got 0 and -1",
         [] { normal({2}, 0, -1, DType::f32, Device{}); }},
    });
}

TEST_CASE("views and copies refuse by name", "[ops][errors]") {
    check_all({
        {"view: shape (3, 2) with strides (1, 3) cannot be seen as (6,) without a copy: use reshape, or contiguous "
         "first",
         [] {
             view(transpose(f32({2, 3})), {6});
         }},
        {"view: (2, 3) holds 6 elements, (4,) holds 4",
         [] {
             view(f32({2, 3}), {4});
         }},
        {"reshape: (2, 3) holds 6 elements, (4, 2) holds 8",
         [] {
             reshape(f32({2, 3}), {4, 2});
         }},
        {"reshape: only one size may be -1: (-1, -1)",
         [] {
             reshape(f32({2, 3}), {-1, -1});
         }},
        {"permute: (0, 0) does not name each axis of (2, 3) once",
         [] {
             permute(f32({2, 3}), {0, 0});
         }},
        {"permute: (0,) does not name each axis of (2, 3) once",
         [] {
             permute(f32({2, 3}), {0});
         }},
        {"permute: axis 2 is out of range for rank 2",
         [] {
             permute(f32({2, 3}), {0, 2});
         }},
        {"transpose: axis -2 is out of range for rank 1", [] { transpose(f32({2})); }},
        {"slice: axis 2 is out of range for rank 2",
         [] {
             slice(f32({2, 3}), 2, 0, 1);
         }},
        {"slice: the step must be positive: got -1: use flip to reverse", [] { slice(f32({3}), 0, 0, 3, -1); }},
        {"select: index 3 is out of range for axis 1 of (2, 3)",
         [] {
             select(f32({2, 3}), 1, 3);
         }},
        {"select: index -4 is out of range for axis 1 of (2, 3)",
         [] {
             select(f32({2, 3}), 1, -4);
         }},
        {"expand: cannot expand (2, 3) to (2, 4): only axes of size 1 stretch",
         [] {
             expand(f32({2, 3}), {2, 4});
         }},
        {"expand: cannot expand (2, 3) to the lower rank of (3,)",
         [] {
             broadcast_to(f32({2, 3}), {3});
         }},
        {"squeeze: axis 1 of (1, 3) has size 3, not 1",
         [] {
             squeeze(f32({1, 3}), {1});
         }},
        {"unsqueeze: axis 3 is out of range for rank 3",
         [] {
             unsqueeze(f32({2, 3}), 3);
         }},
        {"flatten: axis 1 comes after axis 0",
         [] {
             flatten(f32({2, 3}), 1, 0);
         }},
        {"split: needs at least one part: got 0", [] { split(f32({4}), 0); }},
        {"split: the sizes add up to 3, axis 0 of (4,) has 4",
         [] {
             split(f32({4}), std::vector<std::int64_t>{1, 2});
         }},
        {"split: a size is negative: -1",
         [] {
             split(f32({4}), std::vector<std::int64_t>{5, -1});
         }},
        {"chunk: needs at least one part: got -2", [] { chunk(f32({4}), -2); }},
        {"flip: axis 0 is named twice in (0, -1)",
         [] {
             flip(f32({4}), {0, -1});
         }},
        {"cat: needs at least one tensor", [] { cat({}); }},
        {"cat: shapes differ in more than axis 1: (2, 3) and (3, 3)",
         [] {
             cat({f32({2, 3}), f32({3, 3})}, 1);
         }},
        {"cat: shapes differ in more than axis 0: (2, 3) and (2,)",
         [] {
             cat({f32({2, 3}), f32({2})});
         }},
        {"cat: axis 0 is out of range for rank 0: a 0-d tensor has no axes",
         [] {
             cat({f32({}), f32({})});
         }},
        {"stack: needs at least one tensor", [] { stack({}); }},
        {"stack: shapes differ: (2, 3) and (3, 2)",
         [] {
             stack({f32({2, 3}), f32({3, 2})});
         }},
        {"pad: needs a number per axis at each end: the shape is (2, 3), got 1 and 2",
         [] {
             pad(f32({2, 3}), {1}, {0, 0});
         }},
        {"pad: axis 0 of (2,) cannot lose 3 elements", [] { pad(f32({2}), {-2}, {-1}); }},
        {"repeat: needs a count for each axis of (2, 3): got (2,)",
         [] {
             repeat(f32({2, 3}), {2});
         }},
        {"copy_: the destination (2, 3) is an expanded view: several indices share one element",
         [] {
             copy_(expand(f32({1, 3}), {2, 3}), f32({2, 3}));
         }},
        {"copy_: the source (2, 3) does not fit into (1, 3)",
         [] {
             copy_(f32({1, 3}), f32({2, 3}));
         }},
        {"fill_: the value 256 does not fit into u8: its range is [0, 255]",
         [] { fill_(zeros({2}, DType::u8, Device{}), 256); }},
        {"device: cpu:63 does not exist: there are " + std::to_string(device_count(Device::cpu)) +
             " CPU devices: set GRADUS_CPU_DEVICES to have more",
         [] {
             to(f32({2}), Device{Device::cpu, 63});
         }},
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
    check_all({
        {"var: axis 5 is out of range for rank 1", [] { var(f32({2}), {5}); }},
        {"any: x must be bool: got f32: compare, or cast to bool", [] { any(f32({2})); }},
        {"all: x must be bool: got i64: compare, or cast to bool", [] { all(i64({2})); }},
        {"mean: x must be floating: got i64: use cast", [] { mean(i64({2})); }},
        {"var: x must be floating: got bool: use cast", [] { var(boolean({2})); }},
        {"logsumexp: x must be floating: got i64: use cast", [] { logsumexp(i64({2})); }},
        {"norm: x must be floating: got i64: use cast", [] { norm(i64({2})); }},
        {"max: nothing to choose from: the reduced axes of (2, 0) are empty",
         [] {
             max(f32({2, 0}), {1});
         }},
        {"min: nothing to choose from: the reduced axes of (0,) are empty", [] { min(f32({0})); }},
        {"argmax: axis 2 is out of range for rank 2",
         [] {
             argmax(f32({2, 3}), 2);
         }},
        {"argmax: nothing to choose from: axis 1 of (2, 0) is empty",
         [] {
             argmax(f32({2, 0}), 1);
         }},
        {"argmin: nothing to choose from: axis -1 of (2, 0) is empty",
         [] {
             argmin(f32({2, 0}), -1);
         }},
        {"cumsum: axis 1 is out of range for rank 1", [] { cumsum(f32({2}), 1); }},
    });
}

TEST_CASE("products and rows refuse by name", "[ops][errors]") {
    check_all({
        {"matmul: the inner sizes differ: (2, 3) and (2, 3)",
         [] {
             matmul(f32({2, 3}), f32({2, 3}));
         }},
        {"matmul: the inner sizes differ: (3,) and (4,)", [] { matmul(f32({3}), f32({4})); }},
        {"matmul: the batch axes do not broadcast: (2, 3, 4) and (3, 4, 5)",
         [] {
             matmul(f32({2, 3, 4}), f32({3, 4, 5}));
         }},
        {"matmul: a 0-d operand has no axis to multiply along: () and (2, 3), use mul",
         [] {
             matmul(f32({}), f32({2, 3}));
         }},
        {"matmul: has no product of bool: shape (2, 2), cast it first",
         [] {
             matmul(boolean({2, 2}), f32({2, 2}));
         }},
        {"linear: x has the shape (2, 3), the weight takes (…, 4): (5, 4)",
         [] {
             linear(f32({2, 3}), f32({5, 4}));
         }},
        {"linear: the weight must be (out, in): got (4,)",
         [] {
             linear(f32({2, 4}), f32({4}));
         }},
        {"linear: the bias must be (5,) for a weight of shape (5, 4): got (4,)",
         [] {
             linear(f32({2, 4}), f32({5, 4}), f32({4}));
         }},
        {"softmax: axis 2 is out of range for rank 2",
         [] {
             softmax(f32({2, 3}), 2);
         }},
        {"softmax: x must be floating: got i64: use cast", [] { softmax(i64({2}), 0); }},
        {"log_softmax: axis -3 is out of range for rank 2",
         [] {
             log_softmax(f32({2, 3}), -3);
         }},
        {"masked_softmax: visible must be bool: got f32: compare, or cast to bool",
         [] {
             masked_softmax(f32({2, 3}), f32({2, 3}), 1);
         }},
        {"masked_softmax: the mask does not broadcast to x: (4, 2, 3) and (2, 3)",
         [] {
             masked_softmax(f32({2, 3}), boolean({4, 2, 3}), 1);
         }},
        {"layer_norm: weight and bias must have the sizes of x's last axes: (4,) for x of (2, 3)",
         [] {
             layer_norm(f32({2, 3}), f32({4}));
         }},
        {"layer_norm: x has too few axes: (3,), it runs over the last 2",
         [] {
             layer_norm(f32({3}), f32({2, 3}));
         }},
        {"layer_norm: eps must not be negative: got -1",
         [] {
             layer_norm(f32({2, 3}), {}, {}, -1);
         }},
        {"layer_norm: x must be floating: got i64: use cast",
         [] {
             layer_norm(i64({2, 3}));
         }},
        {"rms_norm: weight must have one axis, x's last: got (2, 3)",
         [] {
             rms_norm(f32({2, 3}), f32({2, 3}));
         }},
        {"dropout: the probability must lie in [0, 1]: got 1.5", [] { dropout(f32({2}), 1.5); }},
        {"dropout: x must be floating: got i64: use cast", [] { dropout(i64({2}), 0.5); }},
    });
}

TEST_CASE("attention refuses by name", "[ops][errors]") {
    const std::string op = "scaled_dot_product_attention: ";
    const auto attend = [](const Shape& q, const Shape& k, const Shape& v, const Tensor& mask = {},
                           const Tensor& added = {}) {
        AttentionOptions options;
        options.mask = mask;
        options.additive_mask = added;
        scaled_dot_product_attention(f32(q), f32(k), f32(v), options);
    };
    const Shape x{2, 1, 3, 4};
    check_all({
        {op + "q must have the axes (batch, heads, positions, features): got (2, 3, 4)",
         [&] {
             attend({2, 3, 4}, x, x);
         }},
        {op + "batch and heads differ: q (2, 1, 3, 4), k (1, 1, 3, 4), v (2, 1, 3, 4)",
         [&] {
             attend(x, {1, 1, 3, 4}, x);
         }},
        {op + "q and k have different feature sizes: (2, 1, 3, 4) and (2, 1, 3, 5)",
         [&] {
             attend(x, {2, 1, 3, 5}, x);
         }},
        {op + "k and v have different numbers of positions: (2, 1, 3, 4) and (2, 1, 2, 4)",
         [&] {
             attend(x, x, {2, 1, 2, 4});
         }},
        {op +
             "mask must be bool (true = may be seen): got f32, pass numbers to be added to the scores as additive_mask",
         [&] {
             attend(x, x, x, f32({3, 3}));
         }},
        {op + "additive_mask must be floating: got bool: use cast",
         [&] {
             attend(x, x, x, {}, boolean({3, 3}));
         }},
        {op + "additive_mask has no gradient here: detach it, or compose attention from matmul and softmax",
         [&] {
             attend(x, x, x, {}, require_grad(f32({3, 3})));
         }},
    });
    CHECK(contains(error_of([&] { attend(x, x, x, boolean({2, 3})); }), "(2, 3)"));
}

TEST_CASE("indexing refuses by name, position, value and range", "[ops][errors]") {
    check_all({
        {"embedding: the table must be (n, d): got (5,)", [] { embedding(ids({0}), f32({5})); }},
        {"embedding: index 5 at position (1,) is out of range: expected 0 to 4",
         [] {
             embedding(ids({0, 5}), f32({5, 2}));
         }},
        {"embedding: index -1 at position (0,) is out of range: expected 0 to 4",
         [] {
             embedding(ids({-1}), f32({5, 2}));
         }},
        {"embedding: the index must be i64 or i32: got f32",
         [] {
             embedding(f32({2}), f32({5, 2}));
         }},
        {"embedding: padding_idx 5 is not a row of the table (5, 2), and -1 means none",
         [] {
             embedding(ids({0}), f32({5, 2}), 5);
         }},
        {"gather: the index needs as many axes as the values: got (2,) for (2, 3)",
         [] {
             gather(f32({2, 3}), 0, ids({0, 1}));
         }},
        {"gather: the index is larger than the values along axis 1: got (1, 4) for (2, 3)",
         [] {
             gather(f32({2, 3}), 0, i64({1, 4}));
         }},
        {"gather: index 3 at position (1,) is out of range: expected 0 to 2",
         [] {
             gather(f32({3}), 0, ids({2, 3}));
         }},
        {"gather: the index must be i64 or i32: got bool", [] { gather(f32({3}), 0, boolean({2})); }},
        {"gather: axis 1 is out of range for rank 1", [] { gather(f32({3}), 1, ids({0})); }},
        {"scatter_add: the source needs the index's shape: got (2,) and (1,)",
         [] { scatter_add(f32({3}), 0, ids({0}), f32({2})); }},
        {"scatter_add: the source is f64, the values are f32, cast one",
         [] { scatter_add(f32({3}), 0, ids({0}), zeros({1}, DType::f64, Device{})); }},
        {"scatter_add: index 7 at position (0,) is out of range: expected 0 to 2",
         [] { scatter_add(f32({3}), 0, ids({7}), f32({1})); }},
        {"index_select: the index must have one axis: got (1, 1)",
         [] {
             index_select(f32({3}), 0, i64({1, 1}));
         }},
        {"index_select: index 3 at position (0,) is out of range: expected 0 to 2",
         [] { index_select(f32({3}), 0, ids({3})); }},
        {"index_select: index 0 at position (0,): the axis is empty", [] { index_select(f32({0}), 0, ids({0})); }},
        {"one_hot: index 4 at position (0,) is out of range: expected 0 to 3", [] { one_hot(ids({4}), 4); }},
        {"one_hot: the number of classes is negative: -1", [] { one_hot(ids({0}), -1); }},
        {"topk: k must lie between 0 and the axis' size 3: got 4 for the shape (2, 3)",
         [] {
             topk(f32({2, 3}), 4);
         }},
        {"topk: axis 2 is out of range for rank 2",
         [] {
             topk(f32({2, 3}), 1, 2);
         }},
    });
}

TEST_CASE("losses refuse by name", "[ops][errors]") {
    CrossEntropyOptions smoothed, weighted;
    smoothed.label_smoothing = 1.5;
    weighted.class_weights = f32({4});
    check_all({
        {"cross_entropy: logits must be (N, C) or (N, C, …) with at least one class: got (3,)",
         [] { cross_entropy(f32({3}), ids({0})); }},
        {"cross_entropy: targets must be (2,) for logits of (2, 3): got (3,)",
         [] {
             cross_entropy(f32({2, 3}), ids({0, 1, 2}));
         }},
        {"cross_entropy: targets must be i64 or i32 class numbers: got bool of shape (2,)",
         [] {
             cross_entropy(f32({2, 3}), boolean({2}));
         }},
        {"cross_entropy: logits must be floating: got i64: use cast",
         [] {
             cross_entropy(i64({2, 3}), ids({0, 1}));
         }},
        {"cross_entropy: a target is out of range: position 1 holds 3, classes are [0, 3) and ignore_index is -100",
         [] {
             cross_entropy(f32({2, 3}), ids({0, 3}));
         }},
        {"cross_entropy: label_smoothing must lie in [0, 1]: got 1.5",
         [&] {
             cross_entropy(f32({2, 3}), ids({0, 1}), smoothed);
         }},
        {"cross_entropy: class_weights must have one weight a class, (3,): got (4,)",
         [&] {
             cross_entropy(f32({2, 3}), ids({0, 1}), weighted);
         }},
        {"nll_loss: has no label smoothing, cross_entropy has: got 1.5",
         [&] {
             nll_loss(f32({2, 3}), ids({0, 1}), smoothed);
         }},
        {"nll_loss: a target is out of range: position 0 holds -1, classes are [0, 3) and ignore_index is -100",
         [] {
             nll_loss(f32({2, 3}), ids({-1, 1}));
         }},
        {"bce_loss: x must hold probabilities in [0, 1]: for logits use bce_with_logits_loss",
         [] { bce_loss(ones({2}, DType::f32, Device{}) * 2, f32({2})); }},
    });
    using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
    const std::vector<std::pair<const char*, Loss>> losses = {{"mse_loss", mse_loss},
                                                              {"l1_loss", l1_loss},
                                                              {"bce_loss", bce_loss},
                                                              {"bce_with_logits_loss", bce_with_logits_loss},
                                                              {"gaussian_kl", gaussian_kl}};
    for (const auto& [name, loss] : losses)
        CHECK(
            error_of([loss = loss] {
                loss(f32({4, 1}), f32({4}), Reduction::mean);
            }) ==
            text(name, ": the shapes differ: (4, 1) and (4,), losses do not broadcast: reshape or expand one of them"));
}

TEST_CASE("operands on two devices are named with their shapes and the fix", "[ops][errors]") {
    if (!second_device()) return;
    const Tensor here = f32({2, 3}), there = zeros({2, 3}, DType::f32, other);
    check_all({
        {"add: the operands are on two devices: a (2, 3) on cpu, b (2, 3) on cpu:1: move one with to(b, cpu)",
         [&] { here + there; }},
        {"sub: the operands are on two devices: a (2, 3) on cpu:1, b (2, 3) on cpu: move one with to(b, cpu:1)",
         [&] { there - here; }},
        {"greater: the operands are on two devices: a (2, 3) on cpu, b (2, 3) on cpu:1: move one with to(b, cpu)",
         [&] { greater(here, there); }},
        {"matmul: the operands are on two devices: a (2, 3) on cpu, b (3, 2) on cpu:1: move one with to(b, cpu)",
         [&] { matmul(here, transpose(there)); }},
        {"mse_loss: the operands are on two devices: x (2, 3) on cpu, target (2, 3) on cpu:1: move one with to(target, "
         "cpu)",
         [&] { mse_loss(here, there); }},
        {"cat: the operands are on two devices: the first tensor (2, 3) on cpu, a later one (2, 3) on cpu:1: move one "
         "with "
         "to(a later one, cpu)",
         [&] {
             cat({here, there});
         }},
    });
    CHECK(to(there, Device{}).device() == Device{});
    copy_(here, there);
}

TEST_CASE("every op of several operands refuses two devices, and works on a device of its own", "[ops][errors]") {
    if (!second_device()) return;
    for (const OpRow& row : op_table()) {
        const auto& shapes = row.shapes[0];
        Tensors xs, moved;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            xs.push_back(draw(row.operands[i], shapes[i], DType::f32, i + 1));
            moved.push_back(to(xs.back(), other));
        }
        INFO(row.name);
        if (row.name != "to") CHECK(row.call(moved).device() == other);
        for (std::size_t i = 0; i < xs.size() && xs.size() > 1; ++i) {
            Tensors mixed = xs;
            mixed[i] = moved[i];
            const std::string error = error_of([&] { row.call(mixed); });
            INFO(error);
            CHECK(contains(error, row.name.substr(0, row.name.find(' '))));
            CHECK(contains(error, "two devices"));
            CHECK(contains(error, "cpu:1"));
        }
    }
}

TEST_CASE("every op refuses undefined operands and never crashes on them", "[ops][errors]") {
    for (const OpRow& row : op_table()) {
        const auto& shapes = row.shapes[0];
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            // A bias, a norm's weight and a mask may be left out.
            if (i >= 2 && (row.name == "linear" || row.name.rfind("scaled_dot", 0) == 0)) continue;
            if (i >= 1 && (row.name.rfind("layer_norm", 0) == 0 || row.name.rfind("rms_norm", 0) == 0)) continue;
            Tensors xs;
            for (std::size_t k = 0; k < shapes.size(); ++k)
                xs.push_back(k == i ? Tensor() : draw(row.operands[k], shapes[k], DType::f32, k + 1));
            INFO(row.name << ", operand " << i);
            CHECK(contains(error_of([&] { row.call(xs); }), "undefined"));
        }
    }
}

}  // namespace
}  // namespace gradus::tests
