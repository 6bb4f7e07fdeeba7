// Every family of kernels on shapes that make each of its barriers matter, small enough for ThreadSanitizer and
// compute-sanitizer. Sizes lie above a block's width, so that shared memory is written again after it was read.
#include <functional>

#include "gradus/tests/cards.h"
#include "gradus/tests/situation.h"

namespace gradus::tests {
namespace {

/// The last card: one that is not the first where there are two.

/// Value and gradient of each row in f32, row-major, on a card.
void check_rows(const std::vector<OpRow>& rows) {
    if (!have_cards(1)) return;
    const Device device = last_card();
    for (const OpRow& row : rows) {
        for (const auto& shapes : row.shapes) {
            const Situation s{row, shapes, Lay::contiguous, DType::f32, device};
            INFO(s.words());
            check_value(s);
            if (!row.gradient) continue;
            Situation host = s;
            host.device = {};
            const Tensors got = gradients_of(s, s.bases()), wanted = gradients_of(host, host.bases());
            for (std::size_t i = 0; i < got.size(); ++i) {
                if (!got[i].defined() || !wanted[i].defined()) continue;
                CHECK(differs(got[i], wanted[i].to_vector<double>(), gradient_tolerance(DType::f32, row.length)) == "");
            }
        }
    }
}

TEST_CASE("small shapes on a card: pointwise", "[cuda][race]") { check_rows(pointwise_rows()); }
TEST_CASE("small shapes on a card: reductions", "[cuda][race]") { check_rows(reduce_rows()); }
TEST_CASE("small shapes on a card: copies", "[cuda][race]") { check_rows(view_rows()); }
TEST_CASE("small shapes on a card: products, softmax, norms, attention", "[cuda][race]") { check_rows(product_rows()); }
TEST_CASE("small shapes on a card: indexing and selection", "[cuda][race]") { check_rows(index_rows()); }
TEST_CASE("small shapes on a card: losses", "[cuda][race]") { check_rows(loss_rows()); }

/// f and its gradients on a card equal those on the CPU; the sums behind an element have at most `length` terms.
void compare(const char* name, const std::vector<Sizes>& shapes, std::int64_t length,
             const std::function<Tensor(const Tensors&)>& f) {
    INFO(name);
    const auto results = [&](Device device) {
        Tensors xs;
        for (std::size_t i = 0; i < shapes.size(); ++i)
            xs.push_back(require_grad(to(draw(number(), shapes[i], DType::f32, i + 5), device)));
        const Tensor y = f(xs);
        const Tensor r = draw(number(-1, 1), Sizes(y.shape().begin(), y.shape().end()), DType::f32, 77);
        Tensors all = gradients(y, xs, {}, to(r, device));
        all.push_back(y);
        return all;
    };
    const Tensors wanted = results(Device{}), got = results(last_card());
    for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(differs(got[i], wanted[i].to_vector<double>(), gradient_tolerance(DType::f32, length)) == "");
}

TEST_CASE("rows longer than a block on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    for (const std::int64_t n : {700, 2500}) {
        compare("softmax", {{3, n}}, n, [](const Tensors& x) { return softmax(x[0], -1); });
        compare("log_softmax", {{3, n}}, n, [](const Tensors& x) { return log_softmax(x[0], -1); });
        compare("layer_norm", {{5, n}, {n}, {n}}, n, [](const Tensors& x) { return layer_norm(x[0], x[1], x[2]); });
        compare("rms_norm", {{5, n}, {n}}, n, [](const Tensors& x) { return rms_norm(x[0], x[1]); });
        compare("sum", {{3, n}}, n, [](const Tensors& x) { return sum(x[0], {1}); });
        compare("cumsum", {{2, n}}, n, [](const Tensors& x) { return cumsum(x[0], 1); });
        compare("cross_entropy", {{4, n}}, n, [](const Tensors& x) {
            return cross_entropy(x[0],
                                 to(Tensor::from(std::vector<std::int64_t>{1, 5, -100, 699}, Device{}), x[0].device()));
        });
        const Tensor x = draw(number(), {3, n}, DType::f32, 9);
        CHECK(argmax(to(x, last_card()), 1).to_vector<double>() == argmax(x, 1).to_vector<double>());
        CHECK(topk(to(x, last_card()), 20).indices.to_vector<double>() == topk(x, 20).indices.to_vector<double>());
    }
}

TEST_CASE("sums over many blocks on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    compare("sum of all", {{50000}}, 50000, [](const Tensors& x) { return sum(x[0]); });
    compare("sum of columns", {{3000, 5}}, 3000, [](const Tensors& x) { return sum(x[0], {0}); });
    compare("sum of rows", {{5, 3000}}, 3000, [](const Tensors& x) { return sum(x[0], {1}); });
    compare("norm", {{20000}}, 20000, [](const Tensors& x) { return norm(x[0]); });
}

TEST_CASE("BB-081 the transposing copy of a card, tile by tile", "[cuda][race]") {
    if (!have_cards(1)) return;
    compare("transposed copy", {{70, 130}}, 1, [](const Tensors& x) { return contiguous(transpose(x[0])); });
    compare("of a batch", {{3, 33, 65}}, 1, [](const Tensors& x) { return contiguous(permute(x[0], {0, 2, 1})); });
}

TEST_CASE("products with several steps of the depth on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    for (const std::int64_t k : {40, 150}) {
        compare("a b", {{70, k}, {k, 130}}, k, [](const Tensors& x) { return matmul(x[0], x[1]); });
        compare("batched", {{3, 33, k}, {3, k, 20}}, k, [](const Tensors& x) { return matmul(x[0], x[1]); });
        compare("linear", {{130, k}, {66, k}, {66}}, k, [](const Tensors& x) { return linear(x[0], x[1], x[2]); });
    }
    compare("split depth", {{8, 3000}, {3000, 8}}, 3000, [](const Tensors& x) { return matmul(x[0], x[1]); });
}

TEST_CASE("attention over several blocks of keys and queries on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    for (const bool causal : {false, true})
        for (const std::int64_t d : {32, 64})
            compare("attention", {{1, 2, 150, d}, {1, 2, 150, d}, {1, 2, 150, d}}, 150, [causal](const Tensors& x) {
                return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = causal});
            });
}

TEST_CASE("gradients that meet in one place are added in a fixed order on a card", "[cuda][race]") {
    if (!have_cards(1)) return;
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < 2000; ++i) places.push_back(i * i % 7);
    const Tensor ids = Tensor::from(places, Device{});
    compare("embedding", {{7, 40}}, 2000, [&](const Tensors& x) { return embedding(to(ids, x[0].device()), x[0]); });
    compare("index_select", {{7, 3}}, 2000,
            [&](const Tensors& x) { return index_select(x[0], 0, to(ids, x[0].device())); });
}

// A grid has at most 2,112 blocks where blocks take several items in turn: more items than that make a block go round
// again. Too slow for ThreadSanitizer.
TEST_CASE("blocks that take a second turn on a card", "[cuda]") {
    if (!have_cards(1)) return;
    constexpr std::int64_t items = 2200;
    compare("sum of rows", {{items, 2100}}, 2100, [](const Tensors& x) { return sum(x[0], {1}); });
    compare("transposed copy", {{items, 16, 20}}, 1, [](const Tensors& x) { return contiguous(transpose(x[0])); });
    const Tensor x = draw(number(), {items, 1100}, DType::f32, 9);
    CHECK(argmax(to(x, last_card()), 1).to_vector<double>() == argmax(x, 1).to_vector<double>());
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < items * 256; ++i) places.push_back((i * i + i / 7) % 300);
    const Tensor ids = Tensor::from(places, Device{});
    compare("embedding", {{300, 1}}, items, [&](const Tensors& t) { return embedding(to(ids, t[0].device()), t[0]); });
}

}  // namespace
}  // namespace gradus::tests
