// The fused end of a residual sublayer against the ops it is composed of: values, every gradient, the mask's bits.
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/node.h"
#include "gradus/core/thread_state.h"
#include "gradus/nn/transformer.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using Numbers = std::vector<double>;

Numbers doubles(const Tensor& x) { return x.to_vector<double>(); }

Tensor composed(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double p, double eps,
                bool training, Generator* generator) {
    return layer_norm(residual + dropout(x, p, training, generator), weight, bias, eps);
}

struct Setting {
    Sizes shape = {5, 33};
    double p = 0.5;
    DType type = DType::f32;
    bool training = true, weight = true, bias = true;
    Lay lay = Lay::contiguous;
    RandomScope scope = {};
    Device device = {};

    std::string words() const {
        return text(Shape(shape), " p ", p, ", ", type, training ? "" : ", no training", weight ? "" : ", no weight",
                    bias ? "" : ", no bias", ", ", name_of(lay), ", ", scope.samples, " samples, ", device);
    }
    std::int64_t width() const { return shape.back(); }
};

struct Outcome {
    Tensor y;
    Tensors slopes;  ///< of x, the residual, weight and bias, as far as there are any
    std::uint32_t draws = 0;
};

/// Value and gradients of Σ r y, with fixed r; a scope of samples may be open.
template <class Op>
Outcome run(Op op, const Setting& s) {
    ThreadState state = thread_state();
    state.random_scope = s.scope;
    const ThreadStateGuard guard(state);
    Tensors leaves;
    const auto leaf = [&](const Sizes& shape, std::uint64_t salt) {
        leaves.push_back(require_grad(to(draw(number(), shape, s.type, salt), s.device)));
        return leaves.back();
    };
    const Sizes base = base_shape(s.lay, s.shape);
    const Tensor x = laid(s.lay, leaf(base, 1), s.shape), residual = laid(s.lay, leaf(base, 2), s.shape);
    const Tensor weight = s.weight ? leaf({s.width()}, 3) : Tensor(), bias = s.bias ? leaf({s.width()}, 4) : Tensor();
    Generator generator(6);
    Outcome out;
    out.y = op(x, residual, weight, bias, s.p, 0.1, s.training, &generator);
    out.draws = generator.number();
    out.slopes = gradients(out.y, leaves, {}, to(draw(number(-1, 1), s.shape, s.type, 5), s.device));
    return out;
}

/// The fused op's outcome lies by `wanted`, the slope of x being zero in the same places.
void check_outcome(const Outcome& got, const Outcome& wanted, const Setting& s) {
    INFO(s.words());
    CHECK(got.draws == wanted.draws);
    CHECK(differs(got.y, doubles(wanted.y), tolerance(s.type, s.width())) == "");
    CHECK(got.slopes.size() == wanted.slopes.size());
    for (std::size_t i = 0; i < wanted.slopes.size(); ++i) {
        INFO("gradient " << i);
        CHECK(differs(got.slopes[i], doubles(wanted.slopes[i]), gradient_tolerance(s.type, s.width() + 16)) == "");
    }
    if (s.lay == Lay::expanded || s.width() < 8) return;  // sums of slopes, or slopes that are zero anyway
    const Numbers x = doubles(got.slopes[0]), y = doubles(wanted.slopes[0]);
    for (std::size_t i = 0; i < x.size(); ++i)
        if ((x[i] == 0) != (y[i] == 0)) FAIL_CHECK("element " << i << " is dropped once and kept once");
}
void check_against_composition(const Setting& s) { check_outcome(run(dropout_add_layer_norm, s), run(composed, s), s); }

TEST_CASE("dropout_add_layer_norm is the composition, with every gradient", "[norms][random]") {
    for (const DType type : {DType::f32, DType::f64})
        for (const double p : {0.0, 0.1, 0.5, 1.0})
            for (const Sizes& shape : {Sizes{7, 1}, {2, 3, 31}, {4, 33}, {3, 1025}, {300, 48}, {2, 5000}, {0, 9}, {6}})
                check_against_composition({.shape = shape, .p = p, .type = type});
    for (const double p : {0.1, 0.5, 1.0}) check_against_composition({.p = p, .training = false});
}

TEST_CASE("dropout_add_layer_norm takes any layout, and no weight or bias", "[norms][random]") {
    for (const double p : {0.0, 0.5}) {
        for (const Lay lay : {Lay::transposed, Lay::stepped, Lay::expanded})
            check_against_composition({.shape = {6, 31}, .p = p, .lay = lay});
        check_against_composition({.p = p, .weight = false});
        check_against_composition({.p = p, .bias = false});
        check_against_composition({.p = p, .weight = false, .bias = false});
    }
}

TEST_CASE("dropout_add_layer_norm numbers samples as dropout does", "[norms][random]") {
    // Samples of whole rows, of parts of rows, of some rows and a part.
    for (const std::int64_t samples : {1, 2, 4, 5, 20, 48})
        for (const std::int64_t width : {32, 36, 60})
            check_against_composition({.shape = {20, width * 12}, .scope = {true, 11, samples}});
    const Tensor x = ones({4, 6}, DType::f32, Device{});
    ThreadState state = thread_state();
    state.random_scope = {true, 0, 5};
    const ThreadStateGuard guard(state);
    CHECK(error_of([&] { dropout_add_layer_norm(x, x, {}, {}, 0.5); }) ==
          "dropout_add_layer_norm: x of shape (4, 6) does not fall into 5 equal samples, as the open step scope wants");
    dropout_add_layer_norm(x, x, {}, {}, 0);  // draws nothing
}

TEST_CASE("dropout_add_layer_norm gives each gradient whatever the others do", "[norms]") {
    for (const double p : {0.0, 0.3}) {
        const Setting s{.p = p};
        const Outcome all = run(dropout_add_layer_norm, s);
        for (std::size_t only = 0; only < 4; ++only) {
            INFO("operand " << only << ", p " << p);
            const auto alone = [&](const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                                   double, double eps, bool training, Generator* rng) {
                Tensors xs{x, residual, weight, bias};
                for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = i == only ? xs[i] : detach(xs[i]);
                return dropout_add_layer_norm(xs[0], xs[1], xs[2], xs[3], p, eps, training, rng);
            };
            const Outcome one = run(alone, s);
            for (std::size_t i = 0; i < 4; ++i) CHECK(one.slopes[i].defined() == (i == only));
            CHECK(differs(one.slopes[only], doubles(all.slopes[only]), exactly) == "");
        }
    }
    const Tensor x = require_grad(draw(number(), {3, 17}, DType::f64, 1));
    const Tensor g = draw(number(), {3, 17}, DType::f64, 2);
    Generator a(4), b(4);
    const Tensor fused = dropout_add_layer_norm(x, x, {}, {}, 0.3, 1e-5, true, &a);
    const Tensor plain = composed(x, x, {}, {}, 0.3, 1e-5, true, &b);
    CHECK(differs(gradients(fused, {x}, {}, g)[0], doubles(gradients(plain, {x}, {}, g)[0]),
                  gradient_tolerance(DType::f64, 17)) == "");
}

TEST_CASE("dropout_add_layer_norm by finite differences, once and twice", "[norms][autograd]") {
    const auto x = [](const Sizes& shape, std::uint64_t salt) { return draw(number(), shape, DType::f64, salt); };
    for (const double p : {0.0, 0.4, 1.0}) {
        const auto op = [p](const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias) {
            Generator generator(2);
            return dropout_add_layer_norm(a, b, weight, bias, p, 1e-2, true, &generator);
        };
        const CheckedFunction all = [&](const Tensors& t) { return op(t[0], t[1], t[2], t[3]); };
        const CheckedFunction bare = [&](const Tensors& t) { return op(t[0], t[1], {}, {}); };
        const Tensors xs{x({2, 5}, 1), x({2, 5}, 2), x({5}, 3), x({5}, 4)};
        INFO("p " << p);
        gradcheck(all, xs);
        gradgradcheck(all, xs);
        gradgradcheck(bare, {xs[0], xs[1]});
        Tensors leaves;
        for (const Tensor& t : xs) leaves.push_back(require_grad(clone(t)));
        const Tensor y = all(leaves), g = x({2, 5}, 5);
        const Tensors plain = gradients(y, leaves, {.retain_graph = true}, g),
                      recorded = gradients(y, leaves, {.create_graph = true}, g);
        for (std::size_t i = 0; i < plain.size(); ++i)
            CHECK(differs(recorded[i], doubles(plain[i]), gradient_tolerance(DType::f64, 5)) == "");
    }
}

TEST_CASE("dropout_add_layer_norm drops infinities to exactly zero, forward and backward", "[norms][random]") {
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor x = require_grad(full({3, 20}, infinity, DType::f32, Device{}));
    const Tensor residual = draw(number(), {3, 20}, DType::f32, 1);
    const Tensor y = dropout_add_layer_norm(x, residual, {}, {}, 1);
    CHECK(differs(y, doubles(layer_norm(residual)), exactly) == "");
    CHECK(differs(gradients(y, {x}, {}, detach(x))[0], Numbers(60, 0), exactly) == "");
}

TEST_CASE("dropout_add_layer_norm keeps neither x nor the residual for backward", "[norms][autograd]") {
    const Tensor x = exp(require_grad(draw(number(), {3, 20}, DType::f32, 1)) * 1.0) * 2.0;
    const Tensor residual = require_grad(draw(number(), {3, 20}, DType::f32, 2)) * 1.0;
    const auto holders = [&] { return std::pair{x.storage().use_count(), residual.storage().use_count()}; };
    const auto before = holders();
    const Tensor y = dropout_add_layer_norm(x, residual, {}, {}, 0.5);
    CHECK(holders() == before);
}

TEST_CASE("dropout_add_layer_norm in 16 bits and in mixed dtypes", "[norms]") {
    for (const auto& [a, b, result] : {std::tuple(DType::bf16, DType::bf16, DType::bf16),
                                       {DType::f16, DType::f16, DType::f16},
                                       {DType::bf16, DType::f32, DType::f32},
                                       {DType::f16, DType::bf16, DType::f32},
                                       {DType::f32, DType::f64, DType::f64}}) {
        const Tensor x = require_grad(draw(number(), {4, 33}, a, 1)), residual = draw(number(), {4, 33}, b, 2);
        Generator one(3), two(3);
        const Tensor y = dropout_add_layer_norm(x, residual, {}, {}, 0.5, 0.1, true, &one);
        CHECK(to_string(y.dtype()) == to_string(result));
        CHECK(to_string(gradients(y, {x}, {}, y)[0].dtype()) == to_string(a));
        const Tensor wanted = composed(cast(x, DType::f64), cast(residual, DType::f64), {}, {}, 0.5, 0.1, true, &two);
        CHECK(differs(y, doubles(wanted), tolerance(result == DType::f64 ? DType::f32 : result, 33)) == "");
    }
}

TEST_CASE("dropout_add_layer_norm refuses by name", "[norms][errors]") {
    const auto f32 = [](const Shape& shape) { return zeros(shape, DType::f32, Device{}); };
    const auto refusal = [&](const Tensor& x, const Tensor& residual, const Tensor& weight, double p, double eps) {
        Generator generator(1);
        const std::string error =
            error_of([&] { dropout_add_layer_norm(x, residual, weight, {}, p, eps, true, &generator); });
        CHECK(generator.number() == 0);
        return error;
    };
    const Tensor x = f32({2, 3});
    CHECK(refusal(x, f32({3}), {}, 0.5, 0) ==
          "dropout_add_layer_norm: x and residual must have one shape: got (2, 3) and (3,): expand one to the other");
    CHECK(refusal(x, x, f32({4}), 0.5, 0) ==
          "dropout_add_layer_norm: weight and bias must have the sizes of x's last axes: (4,) for x of (2, 3)");
    CHECK(refusal(f32({}), f32({}), {}, 0.5, 0) ==
          "dropout_add_layer_norm: x has too few axes: (), it runs over the last 1");
    CHECK(refusal(x, x, {}, 1.5, 0) == "dropout_add_layer_norm: the probability must lie in [0, 1]: got 1.5");
    CHECK(refusal(x, x, {}, 0.5, -1) == "dropout_add_layer_norm: eps must not be negative: got -1");
    CHECK(refusal(cast(x, DType::i64), x, {}, 0.5, 0) ==
          "dropout_add_layer_norm: x must be floating: got i64: use cast");
    CHECK(refusal(x, cast(x, DType::i64), {}, 0.5, 0) ==
          "dropout_add_layer_norm: residual must be floating: got i64: use cast");
}

TEST_CASE("a post-norm layer draws and computes what its parts do one by one", "[norms][transformer]") {
    Generator rng(1);
    TransformerLayerOptions o;
    o.d_model = 16, o.heads = 2, o.hidden = 24, o.dropout = 0.3;
    TransformerEncoderLayer layer(o, rng);
    const Tensor x = draw(number(), {3, 5, 16}, DType::f32, 2);
    for (const bool training : {true, false}) {
        layer.train(training);
        manual_seed(7);
        const Tensor y = layer(x);
        const std::uint32_t draws = default_generator().number();
        manual_seed(7);
        const Tensor h = layer.norm1(x + layer.drop(layer.self_attention(x, x, x, AttentionCall{}).output));
        const Tensor z = layer.norm2(h + layer.drop(layer.feed_forward(h)));
        CHECK(default_generator().number() == draws);
        CHECK((draws > 0) == training);
        CHECK(differs(y, doubles(z), tolerance(DType::f32, 16)) == "");
    }
}

// ---- on a card ----

void check_card(Setting s) {
    const Outcome here = run(dropout_add_layer_norm, s);
    s.device = last_card();
    const Outcome there = run(dropout_add_layer_norm, s);
    check_outcome(there, here, s);
    CHECK(doubles(run(dropout_add_layer_norm, s).slopes[0]) == doubles(there.slopes[0]));
}

// A warp's rows and a block's, kept and read again, on 16 bytes and off them.
TEST_CASE("dropout_add_layer_norm of a card is the CPU's, with the same bits dropped", "[cuda][rows][random]") {
    if (!have_cards(1)) return;
    for (const DType type : {DType::f32, DType::f64})
        for (const double p : {0.0, 0.1, 1.0})
            for (const Sizes& shape : {Sizes{7, 1}, {70, 31}, {4, 33}, {9, 64}, {3, 1024}, {2, 1025}, {0, 9}})
                check_card({.shape = shape, .p = p, .type = type});
    for (const std::int64_t n : {5000, 12288, 30000}) check_card({.shape = {2, n}});
    for (const std::int64_t samples : {1, 4, 5, 20, 48})
        for (const std::int64_t width : {32, 36, 61})
            check_card({.shape = {20, width * 12}, .scope = {true, 11, samples}});
    for (const Lay lay : {Lay::transposed, Lay::stepped, Lay::expanded}) check_card({.shape = {6, 32}, .lay = lay});
    check_card({.weight = false});
    check_card({.shape = {5, 64}, .bias = false});
    check_card({.weight = false, .bias = false});
}

TEST_CASE("dropout_add_layer_norm of a card where an operand does not start on 16 bytes", "[cuda][rows]") {
    if (!have_cards(1)) return;
    // Row-major, but one element into its memory.
    const auto shifted = [](std::uint64_t salt, bool shift, Device device) {
        const Tensor memory = to(draw(number(), {3 * 64 + 1}, DType::f32, salt), device);
        return view(slice(memory, 0, shift, 3 * 64 + shift), {3, 64});
    };
    for (int which = 0; which < 3; ++which) {
        INFO("operand " << which);
        const auto on = [&](Device device) {
            const Tensor x = require_grad(shifted(1, which == 0, device)),
                         residual = require_grad(shifted(2, which == 1, device));
            Generator generator(3);
            const Tensor y = dropout_add_layer_norm(x, residual, {}, {}, 0.4, 0.1, true, &generator);
            Tensors all = gradients(y, {x, residual}, {}, shifted(3, which == 2, device));
            all.push_back(y);
            return all;
        };
        const Tensors here = on(Device{}), there = on(last_card());
        for (std::size_t i = 0; i < here.size(); ++i)
            CHECK(differs(there[i], doubles(here[i]), gradient_tolerance(DType::f32, 64)) == "");
    }
}

TEST_CASE("residual sums of rows longer than a block on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    for (const std::int64_t n : {700, 1100, 2501}) check_card({.shape = {5, n}, .p = 0.3});
}

}  // namespace
}  // namespace gradus::tests
