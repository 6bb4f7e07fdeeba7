// Layers and initialisers against their formulas, in plain loops.
#include <algorithm>
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/attention.h"
#include "gradus/nn/container.h"
#include "gradus/nn/embedding.h"
#include "gradus/nn/init.h"
#include "gradus/nn/loss.h"
#include "gradus/nn/norm.h"
#include "gradus/nn/positions.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

const Device here{};
using Numbers = std::vector<double>;

Numbers values(const Tensor& x) { return x.to_vector<double>(); }

void check_near(const Numbers& got, const Numbers& wanted, double tolerance) {
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        INFO("element " << i);
        CHECK(std::abs(got[i] - wanted[i]) <= tolerance);
    }
}

Tensor random(const Shape& shape, Generator& rng, DType dtype = DType::f32) {
    return normal(shape, 0, 1, dtype, here, &rng);
}

double largest(const Numbers& v) {
    double most = 0;
    for (const double x : v) most = std::max(most, std::abs(x));
    return most;
}

double deviation(const Numbers& v) {
    double sum = 0, squares = 0;
    for (const double x : v) sum += x, squares += x * x;
    const double n = double(v.size());
    return std::sqrt(squares / n - sum / n * (sum / n));
}

}  // namespace

TEST_CASE("Linear computes x W^T + b and starts from U(-1/sqrt(in), 1/sqrt(in))", "[layers]") {
    Generator rng(3);
    const Linear layer(3, 2, rng);
    const Tensor x = random({2, 2, 3}, rng);
    const Tensor y = layer(x);
    CHECK(y.shape() == Shape{2, 2, 2});
    const Numbers w = values(layer.weight), b = values(layer.bias), in = values(x);
    Numbers wanted;
    for (int row = 0; row < 4; ++row)
        for (int o = 0; o < 2; ++o) {
            double sum = b[std::size_t(o)];
            for (int i = 0; i < 3; ++i) sum += in[std::size_t(row * 3 + i)] * w[std::size_t(o * 3 + i)];
            wanted.push_back(sum);
        }
    check_near(values(y), wanted, 1e-5);

    const Linear wide(400, 300, rng);
    CHECK(largest(values(wide.weight)) <= 0.05);
    CHECK(largest(values(wide.weight)) > 0.0499);
    CHECK(largest(values(wide.bias)) <= 0.05);
    CHECK(largest(values(wide.bias)) > 0.045);
    const Linear bare(3, 2, rng, here, false);
    CHECK(!bare.bias.defined());
    CHECK(bare.parameters().size() == 1);
    CHECK(values(bare(zeros({1, 3}, DType::f32, here))) == Numbers{0, 0});
}

TEST_CASE("initialisers draw what their formulas say", "[layers]") {
    Generator rng(4);
    const Tensor x = zeros({300, 500}, DType::f32, here);
    init::xavier_uniform(x, rng);
    const double bound = std::sqrt(6.0 / 800);
    CHECK(largest(values(x)) <= bound);
    CHECK(largest(values(x)) > 0.999 * bound);
    CHECK(deviation(values(x)) == Approx(bound / std::sqrt(3.0)).epsilon(0.01));
    init::xavier_normal(x, rng, 2);
    CHECK(deviation(values(x)) == Approx(2 * std::sqrt(2.0 / 800)).epsilon(0.01));
    init::kaiming_uniform(x, rng, 1);
    CHECK(largest(values(x)) <= std::sqrt(3.0 / 500));
    CHECK(largest(values(x)) > 0.999 * std::sqrt(3.0 / 500));
    init::kaiming_normal(x, rng);
    CHECK(deviation(values(x)) == Approx(std::sqrt(2.0 / 500)).epsilon(0.01));
    init::ones(x);
    CHECK(values(x) == Numbers(150000, 1.0));
    init::zeros(x);
    CHECK(largest(values(x)) == 0);
    CHECK(contains(error_of([&] { init::xavier_uniform(zeros({3}, DType::f32, here), rng); }), "(3,)"));
}

TEST_CASE("initial weights do not depend on a batch's random scope", "[layers]") {
    Generator first(5), second(5);
    const Linear plain(4, 4, first);
    ThreadState state = thread_state();
    state.random_scope = {true, 7, 3};
    const ThreadStateGuard guard(state);
    const Linear scoped(4, 4, second);
    CHECK(values(plain.weight) == values(scoped.weight));
}

TEST_CASE("Embedding looks rows up; the padding row is zero and stays so", "[layers]") {
    Generator rng(6);
    const Embedding table(4, 3, rng, 1);
    const Numbers w = values(table.weight);
    CHECK(std::all_of(w.begin() + 3, w.begin() + 6, [](double v) { return v == 0; }));
    const Tensor ids = Tensor::from<std::int64_t>({2, 1, 2, 0}, {2, 2}, here);
    const Tensor y = table(ids);
    CHECK(y.shape() == Shape{2, 2, 3});
    CHECK(values(select(flatten(y, 0, 1), 0, 0)) == Numbers(w.begin() + 6, w.begin() + 9));
    backward(sum(y));
    CHECK(values(table.weight.grad()) == Numbers{1, 1, 1, 0, 0, 0, 2, 2, 2, 0, 0, 0});
    CHECK(deviation(values(Embedding(500, 100, rng).weight)) == Approx(1).epsilon(0.01));
    CHECK(contains(error_of([&] { Embedding(4, 3, rng, 4); }), "padding_idx 4"));
}

TEST_CASE("LayerNorm and RMSNorm follow their formulas", "[layers]") {
    Generator rng(7);
    const LayerNorm norm(5);
    const RMSNorm rms(5);
    init::normal(norm.weight, 1, 0.5, rng);
    init::normal(norm.bias, 0, 1, rng);
    init::normal(rms.weight, 1, 0.5, rng);
    const Tensor x = random({3, 5}, rng);
    const Numbers in = values(x), g = values(norm.weight), b = values(norm.bias), r = values(rms.weight);
    Numbers centred, scaled;
    for (std::size_t row = 0; row < 3; ++row) {
        double mean = 0, variance = 0, square = 0;
        for (std::size_t i = 0; i < 5; ++i) mean += in[row * 5 + i] / 5;
        for (std::size_t i = 0; i < 5; ++i) {
            variance += (in[row * 5 + i] - mean) * (in[row * 5 + i] - mean) / 5;
            square += in[row * 5 + i] * in[row * 5 + i] / 5;
        }
        for (std::size_t i = 0; i < 5; ++i) {
            centred.push_back((in[row * 5 + i] - mean) / std::sqrt(variance + 1e-5) * g[i] + b[i]);
            scaled.push_back(in[row * 5 + i] / std::sqrt(square + 1e-5) * r[i]);
        }
    }
    check_near(values(norm(x)), centred, 1e-5);
    check_near(values(rms(x)), scaled, 1e-5);
}

TEST_CASE("BB-116 Dropout at the ends of its range", "[layers]") {
    const Tensor x = require_grad(Tensor::from<float>({1, 2, 3}, here));
    Dropout all(1), none(0);
    CHECK(values(all(x)) == Numbers{0, 0, 0});
    CHECK(values(none(x)) == Numbers{1, 2, 3});
    all.eval();
    CHECK(values(all(x)) == Numbers{1, 2, 3});
    CHECK(contains(error_of([] { Dropout(-0.1); }), "must be in [0, 1]: got -0.1"));
    CHECK(contains(error_of([] { Dropout(1.5); }), "must be in [0, 1]: got 1.5"));
    CHECK(contains(error_of([] { Dropout(std::nan("")); }), "got nan"));
}

TEST_CASE("BB-149 sinusoidal positions", "[layers]") {
    check_near(values(select(sinusoidal_positions(2, 4, here), 0, 1)), {0.841471, 0.540302, 0.0099998, 0.9999500},
               1e-6);
    check_near(values(select(sinusoidal_positions(2, 4, here), 0, 0)), {0, 1, 0, 1}, 0);
    const Numbers far = values(select(sinusoidal_positions(5001, 64, here), 0, 5000));
    for (std::size_t i = 0; i < 64; i += 2) {
        const double angle = 5000 / std::pow(10000.0, double(i) / 64);
        CHECK(std::abs(far[i] - std::sin(angle)) < 1e-6);
        CHECK(std::abs(far[i + 1] - std::cos(angle)) < 1e-6);
    }
}

TEST_CASE("BB-150 odd width, and a width that the heads do not divide", "[layers]") {
    check_near(values(select(sinusoidal_positions(4, 5, here), 0, 3)),
               {0.141120, -0.989992, 0.075285, 0.997162, 0.001893}, 1e-6);
    Generator rng(8);
    CHECK(error_of([&] { MultiHeadAttention(10, 4, 0, rng); }) ==
          "MultiHeadAttention: d_model 10 is not a multiple of 4 heads: choose sizes that divide");
}

TEST_CASE("positions beyond the longest are refused", "[layers]") {
    Generator rng(8);
    const Positions learned(PositionKind::learned, 4, 2, rng);
    CHECK(learned(3, 1).shape() == Shape{3, 2});
    CHECK(learned.parameters().size() == 1);
    CHECK(contains(error_of([&] { learned(3, 2); }), "a sequence of 5 is longer than the 4 places"));
    const Positions fixed(PositionKind::sinusoidal, 4, 2, rng);
    CHECK(fixed.parameters().empty());
    CHECK(fixed.state_dict().empty());
    check_near(values(fixed(1, 2)), {std::sin(2.0), std::cos(2.0)}, 1e-6);
}

TEST_CASE("Sequential applies its layers in order", "[layers]") {
    Generator rng(9);
    Sequential net(Linear(2, 4, rng), Function(relu));
    net.push_back(Linear(4, 1, rng));
    const Tensor x = random({3, 2}, rng);
    const auto& first = static_cast<Linear&>(net[0]);
    const auto& last = static_cast<Linear&>(net[2]);
    CHECK(values(net(x)) == values(last(relu(first(x)))));
    CHECK(contains(error_of([&] { net[3]; }), "there is no layer 3: it has 3"));
}

TEST_CASE("losses as modules keep their options", "[layers]") {
    const Tensor x = Tensor::from<float>({1, 2, 3}, here), y = Tensor::from<float>({1, 4, 1}, here);
    CHECK(MSELoss()(x, y).item() == Approx(8.0 / 3));
    CHECK(MSELoss(Reduction::sum)(x, y).item() == Approx(8));
    CHECK(L1Loss()(x, y).item() == Approx(4.0 / 3));
    CrossEntropyOptions options;
    options.ignore_index = 0;
    options.label_smoothing = 0.1;
    const CrossEntropyLoss loss(options);
    const Tensor logits = zeros({3, 4}, DType::f32, here), targets = Tensor::from<std::int64_t>({0, 1, 3}, here);
    CHECK(loss(logits, targets).item() == Approx(std::log(4.0)));
    CHECK(loss.sum(logits, targets).sum.item() == Approx(2 * std::log(4.0)));
    CHECK(loss.sum(logits, targets).count.item() == Approx(2));
}

namespace {

/// Attention by its definition, in double: (B, T, d), (B, S, d); visible(b, t, s) says what may be seen.
struct Reference {
    Numbers output, weights;
};
template <class Visible>
Reference attention_by_loops(const MultiHeadAttention& layer, const Tensor& q, const Tensor& kv, Visible&& visible) {
    const auto project = [](const Linear& fc, const Numbers& x, std::size_t rows) {
        const auto in = std::size_t(fc.weight.size(1)), out = std::size_t(fc.weight.size(0));
        const Numbers w = values(fc.weight), b = values(fc.bias);
        Numbers y(rows * out);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t o = 0; o < out; ++o) {
                y[r * out + o] = b[o];
                for (std::size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
            }
        return y;
    };
    const auto B = std::size_t(q.size(0)), T = std::size_t(q.size(1)), S = std::size_t(kv.size(1)),
               d = std::size_t(q.size(2));
    const auto H = std::size_t(layer.heads());
    const std::size_t D = d / H;
    const Numbers Q = project(layer.fc_q, values(q), B * T), K = project(layer.fc_k, values(kv), B * S),
                  V = project(layer.fc_v, values(kv), B * S);
    Numbers mixed(B * T * d), weights(B * H * T * S);
    for (std::size_t b = 0; b < B; ++b)
        for (std::size_t h = 0; h < H; ++h)
            for (std::size_t t = 0; t < T; ++t) {
                Numbers e(S);
                double total = 0;
                for (std::size_t s = 0; s < S; ++s) {
                    double score = 0;
                    for (std::size_t i = 0; i < D; ++i)
                        score += Q[(b * T + t) * d + h * D + i] * K[(b * S + s) * d + h * D + i];
                    e[s] = visible(b, t, s) ? std::exp(score / std::sqrt(double(D))) : 0;
                    total += e[s];
                }
                for (std::size_t s = 0; s < S; ++s) {
                    const double w = total > 0 ? e[s] / total : 0;
                    weights[((b * H + h) * T + t) * S + s] = w;
                    for (std::size_t i = 0; i < D; ++i)
                        mixed[(b * T + t) * d + h * D + i] += w * V[(b * S + s) * d + h * D + i];
                }
            }
    return {project(layer.fc_o, mixed, B * T), weights};
}

}  // namespace

TEST_CASE("MultiHeadAttention follows its definition, with and without returned weights", "[layers]") {
    Generator rng(10);
    const MultiHeadAttention layer(6, 3, 0, rng);
    const Tensor q = random({2, 3, 6}, rng), kv = random({2, 4, 6}, rng);
    const bool seen[2][4] = {{true, true, false, true},
                             {false, false, false, false}};  // the second sentence sees nothing
    const Tensor mask = Tensor::from<bool>({true, true, false, true, false, false, false, false}, {2, 1, 1, 4}, here);

    for (const bool masked : {false, true})
        for (const bool causal : {false, true}) {
            INFO("masked " << masked << ", causal " << causal);
            const Reference wanted = attention_by_loops(layer, q, kv, [&](std::size_t b, std::size_t t, std::size_t s) {
                return (!masked || seen[b][s]) && (!causal || s <= t + 1);  // S - T = 1
            });
            AttentionCall call;
            if (masked) call.mask = mask;
            call.causal = causal;
            const AttentionResult fused = layer(q, kv, kv, call);
            CHECK(!fused.weights.defined());
            check_near(values(fused.output), wanted.output, 2e-5);
            call.need_weights = true;
            const AttentionResult composed = layer(q, kv, kv, call);
            CHECK(composed.weights.shape() == Shape{2, 3, 3, 4});
            check_near(values(composed.output), wanted.output, 2e-5);
            check_near(values(composed.weights), wanted.weights, 1e-5);
        }
}

TEST_CASE("fused and composed attention give the same gradients", "[layers]") {
    Generator rng(11);
    MultiHeadAttention layer(4, 2, 0, rng);
    layer.to(DType::f64);
    const Tensor x = random({2, 3, 4}, rng, DType::f64), direction = random({2, 3, 4}, rng, DType::f64);
    const Tensor mask = Tensor::from<bool>({true, true, false, false, false, false}, {2, 1, 1, 3}, here);
    std::vector<Numbers> gradients[2];
    for (const bool composed : {false, true}) {
        layer.zero_grad();
        AttentionCall call;
        call.mask = mask;
        call.need_weights = composed;
        backward(sum(layer(x, x, x, call).output * direction));
        for (const Tensor& p : layer.parameters()) gradients[composed].push_back(values(p.grad()));
    }
    for (std::size_t i = 0; i < gradients[0].size(); ++i) check_near(gradients[0][i], gradients[1][i], 1e-12);
}

TEST_CASE("BB-015 bool and additive masks agree; a float mask where a bool one is meant is refused", "[layers]") {
    Generator rng(12);
    const MultiHeadAttention layer(4, 2, 0, rng);
    const Tensor x = random({1, 2, 4}, rng);
    AttentionCall by_bool, by_number, wrong, flat;
    by_bool.mask = Tensor::from<bool>({false, true}, {1, 1, 1, 2}, here);
    by_number.additive_mask = Tensor::from<float>({-INFINITY, 0}, {1, 1, 1, 2}, here);
    for (const bool need : {false, true}) {
        by_bool.need_weights = by_number.need_weights = need;
        check_near(values(layer(x, x, x, by_bool).output), values(layer(x, x, x, by_number).output), 1e-6);
    }
    wrong.mask = Tensor::from<float>({0, 1}, {1, 1, 1, 2}, here);
    CHECK(contains(error_of([&] { layer(x, x, x, wrong); }), "mask must be bool (true = may be seen): got f32"));
    flat.mask = Tensor::from<bool>({false, true}, {1, 1, 2}, here);
    CHECK(contains(error_of([&] { layer(x, x, x, flat); }),
                   "mask must be (T, S) or broadcast to (B, H, T, S): got (1, 1, 2)"));
}

TEST_CASE("returned attention weights are those before dropout", "[layers]") {
    Generator rng(13);
    MultiHeadAttention layer(4, 2, 0.5, rng);
    const Tensor x = random({2, 5, 4}, rng);
    AttentionCall call;
    call.need_weights = true;
    const AttentionResult training = layer(x, x, x, call);
    layer.eval();
    const AttentionResult quiet = layer(x, x, x, call);
    CHECK(values(training.weights) == values(quiet.weights));
    CHECK(values(training.output) != values(quiet.output));
    const Numbers rows = values(sum(quiet.weights, {-1}));
    for (const double total : rows) CHECK(total == Approx(1));
}
