// What products, rows, attention, indexing and losses refuse, word for word.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

Tensor f32(const Shape& shape) { return zeros(shape, DType::f32, Device{}); }
Tensor i64(const Shape& shape) { return zeros(shape, DType::i64, Device{}); }
Tensor boolean(const Shape& shape) { return zeros(shape, DType::boolean, Device{}); }
Tensor ids(std::initializer_list<std::int64_t> values) { return Tensor::from(values, Device{}); }

template <class Call>
void refuses(const std::string& wanted, Call call) {
    INFO("wanted: " << wanted);
    CHECK(error_of(call) == wanted);
}

TEST_CASE("products and rows refuse by name", "[ops][errors]") {
    refuses("matmul: the inner sizes differ: (2, 3) and (2, 3)", [] { matmul(f32({2, 3}), f32({2, 3})); });
    refuses("matmul: the inner sizes differ: (3,) and (4,)", [] { matmul(f32({3}), f32({4})); });
    refuses("matmul: the batch axes do not broadcast: (2, 3, 4) and (3, 4, 5)", [] {
        matmul(f32({2, 3, 4}), f32({3, 4, 5}));
    });
    refuses("matmul: a 0-d operand has no axis to multiply along: () and (2, 3), use mul", [] {
        matmul(f32({}), f32({2, 3}));
    });
    refuses("matmul: has no product of bool: shape (2, 2), cast it first", [] {
        matmul(boolean({2, 2}), f32({2, 2}));
    });
    refuses("linear: x has the shape (2, 3), the weight takes (…, 4): (5, 4)", [] {
        linear(f32({2, 3}), f32({5, 4}));
    });
    refuses("linear: the weight must be (out, in): got (4,)", [] { linear(f32({2, 4}), f32({4})); });
    refuses("linear: the bias must be (5,) for a weight of shape (5, 4): got (4,)", [] {
        linear(f32({2, 4}), f32({5, 4}), f32({4}));
    });
    refuses("softmax: axis 2 is out of range for rank 2", [] { softmax(f32({2, 3}), 2); });
    refuses("softmax: x must be floating: got i64: use cast", [] { softmax(i64({2}), 0); });
    refuses("log_softmax: axis -3 is out of range for rank 2", [] { log_softmax(f32({2, 3}), -3); });
    refuses("masked_softmax: visible must be bool: got f32: compare, or cast to bool", [] {
        masked_softmax(f32({2, 3}), f32({2, 3}), 1);
    });
    refuses("masked_softmax: the mask does not broadcast to x: (4, 2, 3) and (2, 3)", [] {
        masked_softmax(f32({2, 3}), boolean({4, 2, 3}), 1);
    });
    refuses("layer_norm: weight and bias must have the sizes of x's last axes: (4,) for x of (2, 3)", [] {
        layer_norm(f32({2, 3}), f32({4}));
    });
    refuses("layer_norm: x has too few axes: (3,), it runs over the last 2", [] { layer_norm(f32({3}), f32({2, 3})); });
    refuses("layer_norm: eps must not be negative: got -1", [] { layer_norm(f32({2, 3}), {}, {}, -1); });
    refuses("layer_norm: x must be floating: got i64: use cast", [] { layer_norm(i64({2, 3})); });
    refuses("rms_norm: weight must have one axis, x's last: got (2, 3)", [] { rms_norm(f32({2, 3}), f32({2, 3})); });
    refuses("dropout: the probability must lie in [0, 1]: got 1.5", [] { dropout(f32({2}), 1.5); });
    refuses("dropout: x must be floating: got i64: use cast", [] { dropout(i64({2}), 0.5); });
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
    refuses(op + "q must have the axes (batch, heads, positions, features): got (2, 3, 4)", [&] {
        attend({2, 3, 4}, x, x);
    });
    refuses(op + "batch and heads differ: q (2, 1, 3, 4), k (1, 1, 3, 4), v (2, 1, 3, 4)", [&] {
        attend(x, {1, 1, 3, 4}, x);
    });
    refuses(op + "q and k have different feature sizes: (2, 1, 3, 4) and (2, 1, 3, 5)", [&] {
        attend(x, {2, 1, 3, 5}, x);
    });
    refuses(op + "k and v have different numbers of positions: (2, 1, 3, 4) and (2, 1, 2, 4)", [&] {
        attend(x, x, {2, 1, 2, 4});
    });
    refuses(
        op + "mask must be bool (true = may be seen): got f32, pass numbers to be added to the scores as additive_mask",
        [&] {
            attend(x, x, x, f32({3, 3}));
        });
    refuses(op + "additive_mask must be floating: got bool: use cast", [&] { attend(x, x, x, {}, boolean({3, 3})); });
    refuses(op + "additive_mask has no gradient here: detach it, or compose attention from matmul and softmax", [&] {
        attend(x, x, x, {}, require_grad(f32({3, 3})));
    });

    CHECK(contains(error_of([&] { attend(x, x, x, boolean({2, 3})); }), "(2, 3)"));
}

TEST_CASE("indexing refuses by name, position, value and range", "[ops][errors]") {
    refuses("embedding: the table must be (n, d): got (5,)", [] { embedding(ids({0}), f32({5})); });
    refuses("embedding: index 5 at position (1,) is out of range: expected 0 to 4", [] {
        embedding(ids({0, 5}), f32({5, 2}));
    });
    refuses("embedding: index -1 at position (0,) is out of range: expected 0 to 4", [] {
        embedding(ids({-1}), f32({5, 2}));
    });
    refuses("embedding: the index must be i64 or i32: got f32", [] { embedding(f32({2}), f32({5, 2})); });
    refuses("embedding: padding_idx 5 is not a row of the table (5, 2), and -1 means none", [] {
        embedding(ids({0}), f32({5, 2}), 5);
    });
    refuses("gather: the index needs as many axes as the values: got (2,) for (2, 3)", [] {
        gather(f32({2, 3}), 0, ids({0, 1}));
    });
    refuses("gather: the index is larger than the values along axis 1: got (1, 4) for (2, 3)", [] {
        gather(f32({2, 3}), 0, i64({1, 4}));
    });
    refuses("gather: index 3 at position (1,) is out of range: expected 0 to 2", [] {
        gather(f32({3}), 0, ids({2, 3}));
    });
    refuses("gather: the index must be i64 or i32: got bool", [] { gather(f32({3}), 0, boolean({2})); });
    refuses("gather: axis 1 is out of range for rank 1", [] { gather(f32({3}), 1, ids({0})); });
    refuses("scatter_add: the source needs the index's shape: got (2,) and (1,)",
            [] { scatter_add(f32({3}), 0, ids({0}), f32({2})); });
    refuses("scatter_add: the source is f64, the values are f32, cast one",
            [] { scatter_add(f32({3}), 0, ids({0}), zeros({1}, DType::f64, Device{})); });
    refuses("scatter_add: index 7 at position (0,) is out of range: expected 0 to 2",
            [] { scatter_add(f32({3}), 0, ids({7}), f32({1})); });
    refuses("index_select: the index must have one axis: got (1, 1)", [] { index_select(f32({3}), 0, i64({1, 1})); });
    refuses("index_select: index 3 at position (0,) is out of range: expected 0 to 2",
            [] { index_select(f32({3}), 0, ids({3})); });
    refuses("index_select: index 0 at position (0,): the axis is empty", [] { index_select(f32({0}), 0, ids({0})); });
    refuses("one_hot: index 4 at position (0,) is out of range: expected 0 to 3", [] { one_hot(ids({4}), 4); });
    refuses("one_hot: the number of classes is negative: -1", [] { one_hot(ids({0}), -1); });
    refuses("topk: k must lie between 0 and the axis' size 3: got 4 for the shape (2, 3)", [] {
        topk(f32({2, 3}), 4);
    });
    refuses("topk: axis 2 is out of range for rank 2", [] { topk(f32({2, 3}), 1, 2); });
}

TEST_CASE("losses refuse by name", "[ops][errors]") {
    CrossEntropyOptions smoothed, weighted;
    smoothed.label_smoothing = 1.5;
    weighted.class_weights = f32({4});
    refuses("cross_entropy: logits must be (N, C) or (N, C, …) with at least one class: got (3,)",
            [] { cross_entropy(f32({3}), ids({0})); });
    refuses("cross_entropy: targets must be (2,) for logits of (2, 3): got (3,)", [] {
        cross_entropy(f32({2, 3}), ids({0, 1, 2}));
    });
    refuses("cross_entropy: targets must be i64 or i32 class numbers: got bool of shape (2,)", [] {
        cross_entropy(f32({2, 3}), boolean({2}));
    });
    refuses("cross_entropy: logits must be floating: got i64: use cast", [] {
        cross_entropy(i64({2, 3}), ids({0, 1}));
    });
    refuses("cross_entropy: a target is out of range: position 1 holds 3, classes are [0, 3) and ignore_index is -100",
            [] {
                cross_entropy(f32({2, 3}), ids({0, 3}));
            });
    refuses("cross_entropy: label_smoothing must lie in [0, 1]: got 1.5", [&] {
        cross_entropy(f32({2, 3}), ids({0, 1}), smoothed);
    });
    refuses("cross_entropy: class_weights must have one weight a class, (3,): got (4,)", [&] {
        cross_entropy(f32({2, 3}), ids({0, 1}), weighted);
    });
    refuses("nll_loss: has no label smoothing, cross_entropy has: got 1.5", [&] {
        nll_loss(f32({2, 3}), ids({0, 1}), smoothed);
    });
    refuses("nll_loss: a target is out of range: position 0 holds -1, classes are [0, 3) and ignore_index is -100", [] {
        nll_loss(f32({2, 3}), ids({-1, 1}));
    });
    refuses("bce_loss: x must hold probabilities in [0, 1]: for logits use bce_with_logits_loss",
            [] { bce_loss(ones({2}, DType::f32, Device{}) * 2, f32({2})); });

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

}  // namespace
}  // namespace gradus::tests
