// Attention and dropout on a card against the CPU: every tile and head size, every way to hide a key, dropout's bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/attention.h"
#include "gradus/kernels/dropout.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

constexpr double inf = INFINITY;

Tensor numbers(const Shape& shape, std::uint64_t salt, DType type = DType::f32) {
    Generator rng(salt);
    return cast(uniform(shape, -1, 1, DType::f32, Device{}, &rng), type);
}
Tensor coins(const Shape& shape, std::uint64_t salt) { return greater(numbers(shape, salt), -0.5); }

/// Memory (B, rows, H, n) or (B, H, rows, n), seen as the latter.
struct Storage {
    std::int64_t B, H;
    bool permuted;
    Shape shape(std::int64_t rows, std::int64_t n) const {
        return permuted ? Shape{B, rows, H, n} : Shape{B, H, rows, n};
    }
    Tensor heads(const Tensor& x) const { return permuted ? x.with_layout(x.layout().permute({0, 2, 1, 3})) : x; }
    Tensor empty(std::int64_t rows, std::int64_t n, DType type, Device device) const {
        return heads(Tensor::empty(shape(rows, n), type, device));
    }
};

enum class Mask { none, full, keys, pairs, transposed, additive, additive_keys, both };

struct Setting {
    std::int64_t T, S, D, E;
    Mask mask = Mask::none;
    bool causal = false, permuted = false;
    double dropout = 0;
    std::int64_t B = 2, H = 2, samples = 0;

    std::string words() const {
        return text("T ", T, " S ", S, " D ", D, " E ", E, " mask ", int(mask), causal ? " causal" : "",
                    permuted ? " permuted" : "", " dropout ", dropout, " samples ", samples);
    }
    Storage storage() const { return {B, H, permuted}; }

    kernels::Attention arguments(DType type, Device device) const {
        const Storage s = storage();
        const auto operand = [&](std::int64_t rows, std::int64_t n, std::uint64_t salt) {
            return s.heads(to(numbers(s.shape(rows, n), salt, type), device));
        };
        kernels::Attention a;
        a.q = operand(T, D, 1), a.k = operand(S, D, 2), a.v = operand(S, E, 3);
        const auto stretched = [&](const Tensor& x) {
            const Tensor there = to(x, device);
            return there.with_layout(there.layout().expand("mask", Shape{B, H, T, S}));
        };
        if (mask == Mask::full || mask == Mask::both) a.mask = stretched(coins({B, H, T, S}, 4));
        if (mask == Mask::keys) a.mask = stretched(coins({B, 1, 1, S}, 4));
        if (mask == Mask::pairs) a.mask = stretched(coins({T, S}, 4));
        if (mask == Mask::transposed) {
            const Tensor m = to(coins({B, H, S, T}, 4), device);
            a.mask = m.with_layout(m.layout().permute({0, 1, 3, 2}));
        }
        if (mask == Mask::additive) a.additive = stretched(numbers({B, H, T, S}, 5, type));
        if (mask == Mask::additive_keys || mask == Mask::both) {
            const Tensor bias = numbers({1, H, 1, S}, 5, type);
            a.additive = stretched(masked_fill(bias, greater(bias, 0.5), -inf));
        }
        a.causal = causal, a.scale = D > 0 ? 1 / std::sqrt(double(D)) : 1;
        a.dropout = dropout, a.draw.seed = 77, a.draw.step = 3, a.draw.number = 5, a.draw.samples = samples,
        a.draw.first_sample = 4;
        return a;
    }
    /// y, lse and the gradients of q, k, v.
    std::vector<Tensor> results(DType type, Device device) const {
        const Storage s = storage();
        const kernels::Attention a = arguments(type, device);
        const Tensor g = s.heads(to(numbers(s.shape(T, E), 6, type), device));
        const Tensor y = s.empty(T, E, type, device);
        const Tensor lse = Tensor::empty({B, H, T}, type == DType::f64 ? type : DType::f32, device);
        const Tensor gq = s.empty(T, D, type, device), gk = s.empty(S, D, type, device),
                     gv = s.empty(S, E, type, device);
        kernels::attention(a, y, lse);
        kernels::attention_backward(a, y, lse, g, gq, gk, gv);
        return {y, lse, gq, gk, gv};
    }
};

void check_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, Tolerance allowed) {
    static const char* const names[] = {"y", "lse", "gq", "gk", "gv"};
    for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(names[i]);
        CHECK(differs(got[i], wanted[i].to_vector<double>(), allowed) == "");
    }
}
void check_setting(const Setting& s, DType type) {
    INFO(to_string(type) << " " << s.words());
    check_equal(s.results(type, card(0)), s.results(type, Device{}), gradient_tolerance(type, s.T + s.S + s.D));
}

TEST_CASE("attention kernels of a card: every number of queries and keys", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const std::int64_t sizes[] = {1, 7, 64, 65, 130}, widths[] = {8, 32, 40, 64, 96, 128, 160};
    int n = 0;
    for (const std::int64_t T : sizes)
        for (const std::int64_t S : sizes)
            for (const bool causal : {false, true}) {
                ++n;
                const Setting s{T,
                                S,
                                widths[n % 7],
                                widths[n * 3 % 7],
                                Mask(n % 8),
                                causal,
                                n % 3 == 0,
                                n % 2 * 0.25,
                                2,
                                n % 4 == 3 ? 3 : 1,
                                n % 5 ? 0 : 2};
                check_setting(s, n % 4 == 0 ? DType::f64 : DType::f32);
            }
}

TEST_CASE("attention kernels of a card: every head size and mask", "[cuda][attention]") {
    if (!have_cards(1)) return;
    for (const std::int64_t width : {1, 8, 32, 40, 64, 96, 128, 160, 256, 300})
        for (const Mask mask : {Mask::none, Mask::full, Mask::keys, Mask::pairs, Mask::transposed, Mask::additive,
                                Mask::additive_keys, Mask::both}) {
            const bool odd = int(mask) % 2 == 1;
            check_setting({65, 70, width, width, mask, !odd, odd, width % 3 * 0.1, 1, 1}, DType::f32);
            if (width == 40 || width == 96) check_setting({20, 37, width, 24, mask, odd, odd}, DType::f64);
        }
    check_setting({33, 34, 300, 7}, DType::f32);
    check_setting({33, 34, 7, 300, Mask::keys, true}, DType::f32);
}

TEST_CASE("attention kernels of a card: rows that do not start on 16 bytes", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const Setting s{20, 30, 16, 16};
    const auto results = [&](Device device) {
        kernels::Attention a = s.arguments(DType::f32, device);
        for (Tensor* x : {&a.q, &a.k, &a.v}) *x = slice(to(numbers({2, 2, 30, 21}, 9), device), 3, 5, 21);
        a.q = slice(a.q, 2, 0, 20);
        const Tensor memory = to(numbers({2, 2, 20, 17}, 8), device), y = slice(memory, 3, 1, 17);
        const Tensor lse = Tensor::empty({2, 2, 20}, DType::f32, device);
        kernels::attention(a, y, lse);
        return std::vector<Tensor>{memory, lse};  // with the elements beside the result
    };
    check_equal(results(card(0)), results(Device{}), gradient_tolerance(DType::f32, 60));
}

TEST_CASE("attention kernels of a card: no queries, no keys, no features", "[cuda][attention]") {
    if (!have_cards(1)) return;
    for (const bool causal : {false, true}) {
        check_setting({0, 5, 8, 8, Mask::none, causal}, DType::f32);
        check_setting({5, 0, 8, 8, Mask::none, causal}, DType::f32);
        check_setting({5, 6, 0, 8, Mask::none, causal}, DType::f32);
        check_setting({5, 6, 8, 0, Mask::none, causal}, DType::f32);
    }
}

TEST_CASE("attention kernels of a card: bf16 storage rounds the results of f32 alone", "[cuda][attention]") {
    if (!have_cards(1)) return;
    for (const std::int64_t width : {8, 20, 64, 128, 136}) {
        const Setting s{50, 70, width, width, Mask::keys, true, width % 3 == 2, 0.2};
        INFO(s.words());
        const Storage storage = s.storage();
        kernels::Attention a = s.arguments(DType::bf16, Device{});
        for (Tensor* x : {&a.q, &a.k, &a.v}) *x = cast(*x, DType::f32);
        const Tensor g = storage.heads(cast(numbers(storage.shape(s.T, s.E), 6, DType::bf16), DType::f32));
        const auto f32 = [&](std::int64_t rows) { return storage.empty(rows, width, DType::f32, Device{}); };
        const Tensor y = f32(s.T), lse = Tensor::empty({s.B, s.H, s.T}, DType::f32, Device{});
        const Tensor gq = f32(s.T), gk = f32(s.S), gv = f32(s.S);
        kernels::attention(a, y, lse);
        kernels::attention_backward(a, y, lse, g, gq, gk, gv);
        check_equal(s.results(DType::bf16, card(0)), {y, lse, gq, gk, gv}, gradient_tolerance(DType::bf16));
    }
}

TEST_CASE("attention kernels of a card repeat bit for bit", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const Setting s{130, 130, 64, 64, Mask::keys, true, true, 0.1};
    const auto once = s.results(DType::f32, card(0)), again = s.results(DType::f32, card(0));
    for (std::size_t i = 0; i < once.size(); ++i) CHECK(once[i].to_vector<float>() == again[i].to_vector<float>());
}

TEST_CASE("attention kernels of a card drop the weights that the CPU drops", "[cuda][attention]") {
    if (!have_cards(1)) return;
    // Equal scores, and values that make each weight a result of its own.
    for (const auto& sizes : {std::array<std::int64_t, 3>{70, 70, 0}, {13, 65, 2}, {1, 100, 4}, {9, 16, 1}})
        for (const double p : {0.25, 0.5, 1.0}) {
            const std::int64_t T = sizes[0], S = sizes[1];
            Setting s{T, S, 8, S};
            s.dropout = p, s.samples = sizes[2], s.B = 4;
            const auto results = [&](Device device) {
                kernels::Attention a = s.arguments(DType::f32, device);
                a.scale = 0;
                std::vector<float> one_hot(std::size_t(S * S), 0);
                for (std::int64_t i = 0; i < S; ++i) one_hot[std::size_t(i * S + i)] = 1;
                const Tensor v = Tensor::from(one_hot, {S, S}, device);
                a.v = v.with_layout(v.layout().expand("v", Shape{4, 2, S, S}));
                const Tensor y = Tensor::empty({4, 2, T, S}, DType::f32, device);
                kernels::attention(a, y, Tensor::empty({4, 2, T}, DType::f32, device));
                return y;
            };
            const Tensor there = results(card(0)), here = results(Device{});
            INFO(s.words());
            CHECK(differs(there, here.to_vector<double>()) == "");
            CHECK(equal(to(there, Device{}), 0).to_vector<int>() == equal(here, 0).to_vector<int>());
        }
}

TEST_CASE("BB-001 a fully masked attention row is zero on a card, also where values are NaN", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const auto leaf = [](std::vector<float> values) {
        return require_grad(Tensor::from(values, {1, 1, 3, 1}, card(0)));
    };
    const Tensor q = leaf({0, 0, 0}), k = leaf({0, 0, 0}), v = leaf({10, 20, 40});
    AttentionOptions options;
    options.mask = Tensor::from({false, true, true}, {1, 1, 1, 3}, card(0)), options.causal = true;
    const Tensor y = scaled_dot_product_attention(q, k, v, options);
    CHECK(differs(y, {0, 20, 30}) == "");
    backward(sum(y));
    CHECK(differs(v.grad(), {0, 1.5, 0.5}) == "");
    for (const Tensor& x : {q, k}) CHECK(differs(x.grad(), {0, 0, 0}) == "");

    const Tensor nan = require_grad(full({1, 1, 70, 8}, NAN, DType::f32, card(0)));
    const Tensor queries = require_grad(to(numbers({1, 1, 70, 8}, 1), card(0)));
    options.mask = to(full({70, 70}, 0, DType::boolean, Device{}), card(0)), options.causal = false;
    const Tensor none = scaled_dot_product_attention(queries, queries, nan, options);
    CHECK(differs(none, std::vector<double>(560, 0), exactly) == "");
    backward(sum(none));
    for (const Tensor& x : {queries, nan}) CHECK(differs(x.grad(), std::vector<double>(560, 0), exactly) == "");
}

TEST_CASE("attention of bf16 tensors: a card reads them as they are, the CPU through f32", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const auto results = [](Device device) {
        std::vector<Tensor> x;
        for (std::uint64_t salt : {1, 2, 3})
            x.push_back(require_grad(to(numbers({2, 3, 37, 16}, salt, DType::bf16), device)));
        AttentionOptions options;
        options.causal = true;
        options.mask = to(greater(numbers({2, 1, 37, 37}, 4), -0.5), device);
        const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], options);
        std::vector<Tensor> all = gradients(y, x, {}, to(numbers(y.shape(), 5, DType::bf16), device));
        all.push_back(y);
        return all;
    };
    const auto there = results(card(0)), here = results(Device{});
    for (std::size_t i = 0; i < here.size(); ++i) {
        CHECK(there[i].dtype() == DType::bf16);
        CHECK(differs(there[i], here[i].to_vector<double>(), gradient_tolerance(DType::bf16)) == "");
    }
}

TEST_CASE("attention by key lengths is attention by the mask they stand for", "[cuda][attention]") {
    for (const Device device : {Device{}, card(0)}) {
        if (device.kind == Device::cuda && !have_cards(1)) return;
        const auto x = [&](std::uint64_t salt) { return to(numbers({3, 2, 5, 4}, salt), device); };
        const Tensor q = x(1), k = x(2), v = x(3), lengths = Tensor::from(std::vector<std::int64_t>{5, 0, 2}, device);
        AttentionOptions by_length, by_mask;
        by_length.key_lengths = lengths;
        by_mask.mask = Tensor::from(
            {true, true, true, true, true, false, false, false, false, false, true, true, false, false, false},
            {3, 1, 1, 5}, device);
        const auto results = [&](AttentionOptions options, bool causal) {
            options.causal = causal;
            return scaled_dot_product_attention(q, k, v, options).to_vector<float>();
        };
        for (const bool causal : {false, true}) CHECK(results(by_length, causal) == results(by_mask, causal));
        by_length.mask = to(greater(numbers({5, 5}, 4), 0.0), device);
        by_mask.mask = logical_and(by_mask.mask, by_length.mask);
        CHECK(results(by_length, false) == results(by_mask, false));
        by_length.key_lengths = ones({2}, DType::i64, device);
        CHECK(contains(error_of([&] { results(by_length, false); }),
                       "key_lengths must be one integer a batch item, (3,): got i64 (2,)"));
    }
}

TEST_CASE("BB-010 lowest finite numbers as an additive mask do not turn to NaN on a card", "[cuda][attention]") {
    if (!have_cards(1)) return;
    const auto filled = [](double value, const Shape& shape) { return full(shape, value, DType::f32, card(0)); };
    for (const double score : {-15.9, -16.0, -1000.0}) {
        AttentionOptions options;
        options.scale = 1;
        options.additive_mask = filled(double(std::numeric_limits<float>::lowest()), {1, 1, 1, 4});
        const auto attend = [&] {
            return scaled_dot_product_attention(filled(1, {1, 1, 1, 1}), filled(score, {1, 1, 4, 1}),
                                                filled(3, {1, 1, 4, 1}), options);
        };
        CHECK(differs(attend(), {3}) == "");
        options.additive_mask = filled(-inf, {1, 1, 1, 4});
        CHECK(differs(attend(), {0}, exactly) == "");
    }
}

TEST_CASE("BB-041 attention over 65,600 heads, forward and backward", "[cuda][attention][slow]") {
    if (!have_cards(1)) return;
    Setting s{1, 2, 2, 2};
    s.B = 4100, s.H = 16;
    check_setting(s, DType::f32);
}

TEST_CASE("dropout of a card is the CPU's bit for bit", "[cuda][random]") {
    if (!have_cards(1)) return;
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
        for (const std::int64_t size : {0, 1, 7, 8, 127, 1025, 4096})
            for (const std::int64_t samples : {0, 1, 3})
                for (const std::int64_t skipped : {0, 1}) {  // elements before the first: rows off 16 bytes
                    INFO(to_string(type) << " " << size << " x " << samples << " after " << skipped);
                    const std::int64_t count = size * std::max<std::int64_t>(samples, 1);
                    Draw draw;
                    draw.seed = 9, draw.number = 4, draw.samples = samples, draw.first_sample = 6;
                    const Tensor x = numbers({count + skipped}, 2, type);
                    const auto dropped = [&](Device device) {
                        const Tensor memory = full({count + skipped}, 5, type, device);
                        kernels::dropout(slice(to(x, device), 0, skipped, count + skipped), 0.3, draw,
                                         slice(memory, 0, skipped, count + skipped));
                        return memory.to_vector<double>();
                    };
                    CHECK(dropped(card(0)) == dropped(Device{}));
                }
}

TEST_CASE("BB-116 dropout at the ends of its range on a card", "[cuda][random]") {
    if (!have_cards(1)) return;
    const Tensor x = require_grad(Tensor::from({1.f, 2.f, 3.f}, card(0)));
    for (const double p : {0.0, 1.0}) {
        zero_grad(x);
        const Tensor y = dropout(x, p);
        CHECK(differs(y, p == 0 ? std::vector<double>{1, 2, 3} : std::vector<double>{0, 0, 0}, exactly) == "");
        backward(sum(y));
        CHECK(differs(x.grad(), std::vector<double>(3, 1 - p), exactly) == "");
    }
    for (const double p : {-0.1, 1.5}) CHECK(contains(error_of([&] { dropout(x, p); }), text(p)));
}

TEST_CASE("BB-117 an infinite input is dropped to zero or kept on a card, as on the CPU", "[cuda][random]") {
    if (!have_cards(1)) return;
    Generator a(3), b(3);
    const auto there = dropout(full({1000}, inf, DType::f32, card(0)), 0.1, true, &a).to_vector<float>();
    CHECK(there == dropout(full({1000}, inf, DType::f32, Device{}), 0.1, true, &b).to_vector<float>());
    CHECK(std::count(there.begin(), there.end(), 0.0f) > 50);
}

TEST_CASE("BB-121 the mask on a card follows the seed and the number of draws, nothing else", "[cuda][random]") {
    if (!have_cards(1)) return;
    const auto mask_after = [](int draws, Device device) {
        manual_seed(123);
        for (int i = 0; i < draws; ++i) dropout(ones({1 + i * 50}, DType::f32, device), 0.5);
        for (int i = 0; i < 3; ++i) dropout(ones({3, 3}, DType::f32, device), 0.5, false);
        return dropout(ones({3, 3}, DType::f32, device), 0.5).to_vector<float>();
    };
    for (int n = 1; n <= 4; ++n) CHECK(mask_after(n, card(0)) == mask_after(n, Device{}));
    CHECK(mask_after(1, card(0)) != mask_after(2, card(0)));
}

}  // namespace
}  // namespace gradus::tests
