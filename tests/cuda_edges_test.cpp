// Sizes at which launches, tiles and index arithmetic change on a card: every rung of the product, rows of every
// strategy, many heads, tall and thin tensors.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/attention.h"
#include "gradus/kernels/index.h"
#include "gradus/kernels/memory.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/kernels/matmul/rung.h"

namespace gradus::tests {
namespace {

/// Numbers in [-1, 1), the same for the same salt, on the CPU.
Tensor numbers(const Shape& shape, std::uint64_t salt, DType type = DType::f32) {
    Generator rng(salt);
    return cast(uniform(shape, -1, 1, DType::f32, Device{}, &rng), type);
}

std::vector<double> doubles(const Tensor& x) { return x.to_vector<double>(); }

// ---- products ----

/// The sum in f64, from the definition.
std::vector<double> product(const Tensor& a, const Tensor& b) {
    const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    const auto x = doubles(a), y = doubles(b);
    std::vector<double> z(std::size_t(m * n), 0);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t q = 0; q < k; ++q)
            for (std::int64_t j = 0; j < n; ++j)
                z[std::size_t(i * n + j)] += x[std::size_t(i * k + q)] * y[std::size_t(q * n + j)];
    return z;
}

TEST_CASE("every rung of the product is right for every transposition, size, split and dtype", "[cuda][matmul]") {
    if (!have_cards(1)) return;
    using namespace kernels::cuda;
    struct Sizes {
        std::int64_t m, n, k;
    };
    for (const auto& [m, n, k] :
         {Sizes{1, 1, 1}, Sizes{2, 33, 17}, Sizes{65, 31, 64}, Sizes{130, 132, 40}, Sizes{64, 64, 0}})
        for (const bool across : {false, true})
            for (const bool down : {false, true})
                for (const Rung rung : {Rung::naive, Rung::tiled, Rung::register_64, Rung::register_128})
                    for (const int parts : {1, 3}) {
                        const Tensor a = numbers(across ? Shape{k, m} : Shape{m, k}, 1),
                                     b = numbers(down ? Shape{n, k} : Shape{k, n}, 2), row = numbers({n}, 3);
                        const Tensor left = across ? transpose(a) : a, right = down ? transpose(b) : b;
                        const Tensor x = to(a, card(0)), w = to(b, card(0));
                        const Tensor y = Tensor::empty({m, n}, DType::f32, card(0));
                        kernels::cuda::multiply(across ? transpose(x) : x, down ? transpose(w) : w, to(row, card(0)), y,
                                                false, {rung, parts});
                        auto wanted = product(left, right);
                        const auto bias = doubles(row);
                        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += bias[i % bias.size()];
                        INFO("rung " << int(rung) << ", parts " << parts << ", " << m << " x " << n << " x " << k
                                     << ", " << across << down);
                        CHECK(differs(y, wanted, tolerance(DType::f32, k + 1)) == "");
                        kernels::cuda::multiply(across ? transpose(x) : x, down ? transpose(w) : w, {}, y, true,
                                                {rung, parts});
                        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += wanted[i] - bias[i % bias.size()];
                        CHECK(differs(y, wanted, tolerance(DType::f32, 4 * k + 4)) == "");
                    }
    for (const DType type : {DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
        const double size = is_floating(type) ? 1 : 9;
        const Tensor a = cast(mul(numbers({70, 65}, 4), size), type), b = cast(mul(numbers({65, 66}, 5), size), type);
        const Tensor here = matmul(a, b), there = matmul(to(a, card(0)), to(b, card(0)));
        INFO(to_string(type));
        CHECK(differs(there, doubles(here), tolerance(type, 65)) == "");
    }
}

TEST_CASE("BB-009 products without rows, outputs or a sum on a card", "[cuda][matmul]") {
    if (!have_cards(1)) return;
    for (const auto& [rows, in, out] : {std::tuple{0, 128, 256}, {5, 128, 0}, {7, 0, 300}, {0, 0, 0}})
        for (const bool relu : {false, true}) {
            const auto results = [rows = rows, in = in, out = out, relu](Device device) {
                const Tensor x = require_grad(to(numbers({rows, in}, 1), device)),
                             w = require_grad(to(numbers({out, in}, 2), device)),
                             b = require_grad(to(numbers({out}, 3), device));
                const Tensor y = (relu ? linear_relu : linear)(x, w, b);
                std::vector<Tensor> all = gradients(y, {x, w, b}, {}, ones_like(y));
                all.push_back(y), all.push_back(matmul(x, transpose(w)));
                return all;
            };
            const auto there = results(card(0)), here = results(Device{});
            for (std::size_t i = 0; i < here.size(); ++i)
                CHECK(differs(there[i], doubles(here[i]), tolerance(DType::f32, 300)) == "");
        }
}

TEST_CASE("products of strided operands, of broadcast batches, and twice with the same bits", "[cuda][matmul]") {
    if (!have_cards(1)) return;
    const Tensor a = numbers({3, 1, 70, 90}, 1), b = numbers({4, 90, 66}, 2);
    const Tensor wanted = matmul(slice(a, 3, 0, 90, 2), slice(b, 1, 0, 90, 2));
    const Tensor x = to(a, card(0)), w = to(b, card(0));
    const Tensor got = matmul(slice(x, 3, 0, 90, 2), slice(w, 1, 0, 90, 2));
    CHECK(got.shape() == Shape{3, 4, 70, 66});
    CHECK(differs(got, doubles(wanted), tolerance(DType::f32, 45)) == "");
    const Tensor long_a = to(numbers({8, 5000}, 3), card(0)), long_b = to(numbers({5000, 8}, 4), card(0));
    const Tensor first = matmul(long_a, long_b), second = matmul(long_a, long_b);  // cut along k
    CHECK(first.to_vector<float>() == second.to_vector<float>());
    CHECK(differs(first, product(to(long_a, Device{}), to(long_b, Device{})), tolerance(DType::f32, 5000)) == "");
}

TEST_CASE("BB-041 a batch of more than 65,535 products", "[cuda][matmul]") {
    if (!have_cards(1)) return;
    const Tensor a = numbers({70000, 2, 3}, 1), b = numbers({70000, 3, 2}, 2);
    CHECK(differs(matmul(to(a, card(0)), to(b, card(0))), doubles(matmul(a, b)), tolerance(DType::f32, 3)) == "");
}

// ---- rows ----

TEST_CASE("rows of every strategy equal the CPU's, forward and backward", "[cuda][rows]") {
    if (!have_cards(1)) return;
    for (const auto& [rows, n] : {std::pair{1, 1}, std::pair{70, 31}, std::pair{3, 33}, std::pair{9, 1024},
                                  std::pair{2, 1025}, std::pair{3, 5000}, std::pair{2, 30000}, std::pair{0, 7}}) {
        const int count = rows, length = n;
        const Shape shape{rows, n};
        const Tensor x = mul(numbers(shape, 1), 5.0), mask = greater(numbers(shape, 2), -0.5),
                     seen = greater(numbers({n}, 3), -0.5);
        const auto compare = [&](const char* what, auto op) {
            INFO(what << " of " << count << " rows of " << length);
            const Tensor a = require_grad(clone(x)), b = require_grad(to(x, card(0)));
            const Tensor y = op(a), z = op(b);
            CHECK(differs(z, doubles(y), tolerance(DType::f32, length)) == "");
            const Tensor g = numbers(shape, 4);
            const Tensor slope = gradients(y, {a}, {}, g)[0], other = gradients(z, {b}, {}, to(g, card(0)))[0];
            CHECK(differs(other, doubles(slope), gradient_tolerance(DType::f32, length)) == "");
        };
        const auto on = [](const Tensor& t, const Tensor& like) { return to(t, like.device()); };
        compare("softmax", [](const Tensor& t) { return softmax(t, -1); });
        compare("log_softmax", [](const Tensor& t) { return log_softmax(t, -1); });
        compare("masked_softmax", [&](const Tensor& t) { return masked_softmax(t, on(mask, t), -1); });
        compare("masked_softmax, one mask for all",
                [&](const Tensor& t) { return masked_softmax(t, on(seen, t), -1); });
        if (n == 1) continue;
        const Tensor weight = numbers({n}, 5), bias = numbers({n}, 6);
        compare("layer_norm", [&](const Tensor& t) { return layer_norm(t, on(weight, t), on(bias, t)); });
        compare("rms_norm", [&](const Tensor& t) { return rms_norm(t, on(weight, t)); });
        const Tensor w = require_grad(clone(weight)), v = require_grad(to(weight, card(0)));
        const Tensor g = numbers(shape, 7);
        const Tensor y = layer_norm(x, w), z = layer_norm(to(x, card(0)), v);
        CHECK(differs(gradients(z, {v}, {}, to(g, card(0)))[0], doubles(gradients(y, {w}, {}, g)[0]),
                      gradient_tolerance(DType::f32, std::max(rows, 1))) == "");
    }
}

TEST_CASE("rows that take just less than 48 KiB of shared memory beside what a kernel declares", "[cuda][rows]") {
    if (!have_cards(1)) return;
    for (const auto& [n, type] :
         {std::pair(12288, DType::f32), {6144, DType::f32}, {6144, DType::f64}, {3072, DType::f64}}) {
        INFO(n << " " << to_string(type));
        const Tensor x = numbers({3, n}, 1, type), g = numbers({3, n}, 2, type), w = numbers({n}, 3, type);
        const auto on = [&](Device device) {
            const Tensor a = require_grad(to(x, device)), b = require_grad(to(w, device));
            const Tensor y = layer_norm(a, b), z = softmax(a, 1);
            std::vector<Tensor> all = gradients(y, {a, b}, {}, to(g, device));
            all.push_back(y), all.push_back(z), all.push_back(gradients(z, {a}, {}, to(g, device))[0]);
            return all;
        };
        const auto there = on(card(0)), here = on(Device{});
        for (std::size_t i = 0; i < here.size(); ++i)
            CHECK(differs(doubles(there[i]), doubles(here[i]), gradient_tolerance(type, n)) == "");
    }
}

TEST_CASE("BB-008 tall and thin: 2^20 rows of one element", "[cuda][rows][slow]") {
    if (!have_cards(1)) return;
    const std::int64_t rows = std::int64_t(1) << 20;
    const Tensor x = numbers({rows, 1}, 1), there = to(x, card(0));
    CHECK(softmax(there, -1).to_vector<float>() == std::vector<float>(std::size_t(rows), 1));
    CHECK(sum(there, {1}).to_vector<float>() == x.to_vector<float>());
    CHECK(sum(there).item() == Approx(sum(x).item()).margin(1e-2));
}

TEST_CASE("cross-entropy over rows of every strategy, with smoothing, weights and ignored rows", "[cuda][rows]") {
    if (!have_cards(1)) return;
    for (const std::int64_t classes : {2, 33, 1024, 4100}) {
        const Tensor x = mul(numbers({6, classes}, 1), 8.0);
        const Tensor ids = Tensor::from(std::vector<std::int64_t>{0, classes - 1, -100, 1, 1, classes / 2}, Device{});
        const Tensor weights = add(numbers({classes}, 2), 1.5);
        for (const bool weighted : {false, true})
            for (const double smoothing : {0.0, 0.1})
                for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
                    const auto loss = [&](const Tensor& logits) {
                        CrossEntropyOptions o;
                        o.label_smoothing = smoothing, o.reduction = reduction;
                        if (weighted) o.class_weights = to(weights, logits.device());
                        return cross_entropy(logits, to(ids, logits.device()), o);
                    };
                    const Tensor a = require_grad(clone(x)), b = require_grad(to(x, card(0)));
                    const Tensor y = loss(a), z = loss(b);
                    CHECK(differs(z, doubles(y), tolerance(DType::f32, classes)) == "");
                    CHECK(differs(gradients(sum(z), {b})[0], doubles(gradients(sum(y), {a})[0]),
                                  gradient_tolerance(DType::f32, classes)) == "");
                }
    }
}

// ---- attention ----

struct Case {
    std::int64_t B, H, T, S, D, E;
    bool causal, masked, additive;
    double dropout;
};

TEST_CASE("attention equals the CPU's for every tile, head size, mask and dropout", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const Case cases[] = {
        {2, 2, 7, 7, 8, 8, false, false, false, 0},     {1, 2, 65, 70, 32, 40, false, true, false, 0.1},
        {2, 1, 64, 64, 64, 64, true, false, false, 0},  {1, 1, 130, 65, 64, 64, true, true, false, 0.2},
        {1, 2, 33, 130, 96, 128, true, false, true, 0}, {1, 1, 40, 41, 160, 24, false, true, true, 0.1},
        {1, 1, 1, 70, 64, 64, true, false, false, 0},   {3, 1, 5, 1, 16, 16, false, false, false, 0.5},
        {1, 1, 20, 20, 256, 256, true, false, false, 0}};
    for (const DType type : {DType::f32, DType::f64})
        for (const Case& c : cases) {
            INFO(to_string(type) << " T " << c.T << " S " << c.S << " D " << c.D << " E " << c.E);
            const Tensor q = numbers({c.B, c.T, c.H, c.D}, 1, type), k = numbers({c.B, c.S, c.H, c.D}, 2, type),
                         v = numbers({c.B, c.S, c.H, c.E}, 3, type);
            const auto run = [&](Device device) {
                std::vector<Tensor> leaves;
                for (const Tensor& x : {q, k, v}) leaves.push_back(require_grad(clone(to(x, device))));
                AttentionOptions o;
                Generator rng(7);
                o.causal = c.causal, o.dropout = c.dropout, o.generator = &rng;
                if (c.masked) o.mask = to(greater(numbers({c.B, 1, 1, c.S}, 4), -0.6), device);
                if (c.additive) o.additive_mask = to(numbers({c.T, c.S}, 5, type), device);
                const auto heads = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
                const Tensor y = scaled_dot_product_attention(heads(leaves[0]), heads(leaves[1]), heads(leaves[2]), o);
                const Tensor g = to(numbers({c.B, c.H, c.T, c.E}, 6, type), device);
                std::vector<Tensor> all = gradients(y, leaves, {}, g);
                all.push_back(y);
                return all;
            };
            const auto here = run(Device{}), there = run(card(0));
            for (std::size_t i = 0; i < here.size(); ++i)
                CHECK(differs(there[i], doubles(here[i]), gradient_tolerance(type, c.S + c.T + c.D)) == "");
            CHECK(run(card(0))[1].to_vector<double>() == there[1].to_vector<double>());  // repeats bit for bit
        }
}

// ---- indexing and random numbers ----

TEST_CASE("additions at repeated places run in the order of the index, whatever way is taken", "[cuda][index]") {
    if (!have_cards(1)) return;
    const std::int64_t n = 3000, bound = 700;
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < n; ++i) places.push_back(i % 5 == 0 ? 3 : i * 7919 % bound);
    const Tensor index = Tensor::from(places, Device{}), there = to(index, card(0));
    const Tensor x = mul(numbers({n}, 1), 1000.0);
    const Tensor start = numbers({bound}, 2);
    CHECK(scatter_add(to(start, card(0)), 0, there, to(x, card(0))).to_vector<float>() ==
          scatter_add(start, 0, index, x).to_vector<float>());
    // An embedding's gradient: rows of 5 columns.
    const Tensor table = require_grad(numbers({bound, 5}, 3)), other = require_grad(to(table.without_past(), card(0)));
    const Tensor g = mul(numbers({n, 5}, 4), 1000.0);
    const Tensor here = gradients(index_select(table, 0, index), {table}, {}, g)[0];
    const Tensor far = gradients(index_select(other, 0, there), {other}, {}, to(g, card(0)))[0];
    CHECK(far.to_vector<float>() == here.to_vector<float>());
}

TEST_CASE("BB-021 an index out of range names position, value and range, and the card goes on", "[cuda][index]") {
    if (!have_cards(1)) return;
    const Tensor table = ones({4, 2}, DType::f32, Device{});
    for (const std::int64_t wrong : {std::int64_t(-1), std::int64_t(4), std::int64_t(1) << 40}) {
        const Tensor index = Tensor::from(std::vector<std::int64_t>{0, 1, wrong, 9, 2, 0}, {2, 3}, Device{});
        const std::string here = error_of([&] { embedding(index, table); });
        CHECK(error_of([&] { embedding(to(index, last_card()), to(table, last_card())); }) == here);
        CHECK(contains(here, "(0, 2)"));
    }
    const Tensor logits = to(numbers({3, 5}, 1), last_card());
    const Tensor targets = to(Tensor::from(std::vector<std::int64_t>{1, 5, 0}, Device{}), last_card());
    CHECK(contains(error_of([&] { cross_entropy(logits, targets); }), "holds 5, classes are [0, 5)"));
    CHECK(sum(ones({3}, DType::f32, last_card())).item() == 3);
}

TEST_CASE("random numbers and dropout of a card are the CPU's, bit for bit", "[cuda][random]") {
    if (!have_cards(1)) return;
    for (const std::int64_t n : {0, 1, 7, 8, 127, 1025, 5000}) {
        Generator a(5), b(5);
        CHECK(uniform({n}, -2, 3, DType::f32, card(0), &a).to_vector<float>() ==
              uniform({n}, -2, 3, DType::f32, Device{}, &b).to_vector<float>());
        CHECK(uniform({n}, -2, 3, DType::f64, card(0), &a).to_vector<double>() ==
              uniform({n}, -2, 3, DType::f64, Device{}, &b).to_vector<double>());
        CHECK(differs(normal({n}, 1, 2, DType::f32, card(0), &a), doubles(normal({n}, 1, 2, DType::f32, Device{}, &b)),
                      tolerance(DType::f32, 4)) == "");
        const Tensor x = numbers({n}, 3);
        for (const double p : {0.1, 0.5, 1.0})
            CHECK(dropout(to(x, card(0)), p, true, &a).to_vector<float>() ==
                  dropout(x, p, true, &b).to_vector<float>());
    }
}

TEST_CASE("reductions of every path: long rows, tall columns, strided, NaN", "[cuda][reduce]") {
    if (!have_cards(1)) return;
    const auto compare = [&](const Tensor& x, const auto& op) {
        CHECK(differs(op(to(x, card(0))), doubles(op(x)), tolerance(DType::f32, x.numel())) == "");
    };
    const Tensor row = numbers({200000}, 1), tall = numbers({3000, 7}, 2), box = numbers({5, 300, 6}, 3);
    for (const Tensor& x : {row, tall, box}) compare(x, [](const Tensor& t) { return sum(t); });
    compare(tall, [](const Tensor& t) { return sum(t, {0}); });
    compare(tall, [](const Tensor& t) { return max(t, {0}); });
    compare(box, [](const Tensor& t) { return sum(t, {1}); });
    compare(box, [](const Tensor& t) { return min(t, {0, 2}); });
    compare(box, [](const Tensor& t) { return sum(transpose(t), {2}); });
    compare(row, [](const Tensor& t) { return cumsum(t, 0); });
    compare(box, [](const Tensor& t) { return cumsum(t, 1); });
    Tensor hole = clone(row);
    fill_(slice(hole, 0, 150000, 150001), NAN);
    CHECK(std::isnan(max(to(hole, card(0))).item()));
    CHECK(argmax(to(hole, card(0)), 0).item<std::int64_t>() == 150000);
}

}  // namespace
}  // namespace gradus::tests
#endif
