// Optimizers on cards: one pass over parameters of many sizes and dtypes, clipped by a norm nobody waits for.
#include <cmath>
#include <random>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/update.h"
#include "gradus/nn/clip.h"
#include "gradus/nn/optimizer.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"
#ifdef GRADUS_EMULATED
#include "gradus/core/emulation/runtime.h"
#endif

namespace gradus::tests {
namespace {

Tensor numbers(std::int64_t n, DType dtype, Device device, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(normal(random));
    return to(cast(Tensor::from(values, Device{}), dtype), device);
}

struct Setting {
    std::int64_t n;
    DType dtype;
};
// Around the chunks that blocks take (16384), no elements at all, and every dtype an optimizer updates.
const std::vector<Setting> settings = {
    {0, DType::f32},     {1, DType::f32},     {3, DType::f64},     {16383, DType::f32}, {16384, DType::f32},
    {0, DType::f32},     {16385, DType::f32}, {40003, DType::f32}, {70, DType::bf16},   {33, DType::f16},
    {16390, DType::f64}, {5, DType::bf16},    {17, DType::f32},    {20001, DType::bf16}};

NamedTensors parameters_on(Device device, bool shifted) {
    NamedTensors list;
    for (std::size_t i = 0; i < settings.size(); ++i) {
        // A leaf that is a view one element into its storage cannot be read 16 bytes at a time.
        Tensor p = numbers(settings[i].n + shifted, settings[i].dtype, device, unsigned(i));
        if (shifted) p = slice(p, 0, 1, settings[i].n + 1);
        list.emplace_back("p" + std::to_string(i), require_grad(p));
    }
    return list;
}

template <class Make>
void follows_the_cpu(const Make& make, double scale, double clip) {
    for (const bool shifted : {false, true}) {
        const NamedTensors host = parameters_on(Device{}, shifted), there = parameters_on(last_card(), shifted);
        const auto on_host = make(host), on_card = make(there);
        for (int step = 0; step < 3; ++step) {
            for (std::size_t i = 0; i < host.size(); ++i) {
                if (int(i) % 5 == step) continue;  // no gradient in this step
                const Tensor g =
                    numbers(settings[i].n, settings[i].dtype, Device{}, unsigned(100 * step) + unsigned(i));
                assign_grad(host[i].second, g), assign_grad(there[i].second, to(g, last_card()));
            }
            const StepOptions options{.gradient_scale = scale, .clip_norm = clip};
            const Tensor a = on_host->step(options), b = on_card->step(options);
            REQUIRE(a.defined() == (clip > 0));
            if (clip > 0) {
                CHECK(b.device() == last_card());
                CHECK(b.item() == Approx(a.item()).epsilon(1e-12));
            }
            on_host->zero_grad(), on_card->zero_grad();
        }
        for (std::size_t i = 0; i < host.size(); ++i) {
            INFO(host[i].first << " of " << settings[i].n << " " << to_string(settings[i].dtype));
            CHECK(differs(there[i].second.to_vector<double>(), host[i].second.to_vector<double>(),
                          tolerance(settings[i].dtype, 16, 3)) == "");
        }
    }
}

TEST_CASE("SGD on a card changes parameters of all sizes and dtypes as on the CPU", "[cuda][optimizer]") {
    if (!have_cards(1)) return;
    follows_the_cpu([](const NamedTensors& p) { return std::make_unique<SGD>(p, SgdOptions{.lr = 0.1}); }, 1, 0);
    follows_the_cpu(
        [](const NamedTensors& p) {
            return std::make_unique<SGD>(
                p, SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01});
        },
        0.5, 3);
    follows_the_cpu(
        [](const NamedTensors& p) {
            return std::make_unique<SGD>(p, SgdOptions{.lr = 0.1, .momentum = 0.8, .nesterov = true});
        },
        1, 1e9);
}

TEST_CASE("Adam on a card changes parameters of all sizes and dtypes as on the CPU", "[cuda][optimizer]") {
    if (!have_cards(1)) return;
    follows_the_cpu([](const NamedTensors& p) { return std::make_unique<Adam>(p, AdamOptions{.lr = 0.01}); }, 1, 0);
    follows_the_cpu(
        [](const NamedTensors& p) {
            // Two groups with options of their own, mixed in one launch.
            const auto middle = p.begin() + 4;
            return std::make_unique<AdamW>(std::vector<ParameterGroup<AdamWOptions>>{
                {{p.begin(), middle}, {.lr = 0.02, .weight_decay = 0.3}}, {{middle, p.end()}, {.lr = 0.005}}});
        },
        2, 1.5);
}

TEST_CASE("sums of squares of many tensors are those of each, and their sum", "[cuda][optimizer]") {
    for (const Device device : {Device{}, card(0)}) {
        if (device.kind == Device::cuda && !have_cards(1)) return;
        std::vector<Tensor> xs;
        for (std::size_t i = 0; i < settings.size(); ++i)
            xs.push_back(numbers(settings[i].n, settings[i].dtype, device, unsigned(i)));
        const std::vector<double> sums = kernels::sums_of_squares(xs).to_vector<double>();
        double total = 0;
        for (std::size_t i = 0; i < xs.size(); ++i) {
            double exact = 0;
            for (const double x : xs[i].to_vector<double>()) exact += x * x;
            CHECK(sums[i] == Approx(exact).epsilon(1e-13));
            total += exact;
        }
        CHECK(sums.back() == Approx(total).epsilon(1e-13));
        CHECK(kernels::sums_of_squares(xs).to_vector<double>() == sums);
    }
}

TEST_CASE("sums of squares of more tensors than a grid has blocks", "[cuda][optimizer]") {
    if (!have_cards(1)) return;
    const Tensor all = numbers(2200 * 70, DType::f32, card(0), 5);
    std::vector<Tensor> xs;
    for (std::int64_t i = 0; i < 2200; ++i) xs.push_back(slice(all, 0, i * 70, (i + 1) * 70));
    const std::vector<double> sums = kernels::sums_of_squares(xs).to_vector<double>(), values = all.to_vector<double>();
    for (std::size_t i = 0; i < xs.size(); ++i) {
        double exact = 0;
        for (std::size_t j = 70 * i; j < 70 * (i + 1); ++j) exact += values[j] * values[j];
        REQUIRE(sums[i] == Approx(exact).epsilon(1e-13));
    }
}

TEST_CASE("gradients with NaN or Inf are found on a card, and then nothing is changed", "[cuda][optimizer]") {
    if (!have_cards(1)) return;
    const Tensor p = require_grad(numbers(20000, DType::f32, card(0), 1)),
                 q = require_grad(numbers(3, DType::f32, card(0), 2));
    std::vector<float> values(20000, 1.0f);
    values[19999] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before = q.to_vector<float>();
    Adam adam({{"q", q}, {"layer.p", p}});
    assign_grad(q, numbers(3, DType::f32, card(0), 3)), assign_grad(p, Tensor::from(values, card(0)));
    CHECK(contains(error_of([&] { adam.step({.clip_norm = 1, .check_finite = true}); }),
                   "adam: the gradient of parameter 'layer.p' holds NaN or Inf, nothing was changed"));
    CHECK(q.to_vector<float>() == before);
    CHECK(adam.state_dict().size() == 5);  // the options alone
}

TEST_CASE("parameters on two cards are clipped by their common norm", "[cuda][optimizer]") {
    if (!have_cards(2)) return;
    const Tensor a = require_grad(zeros({1}, DType::f64, card(0))), b = require_grad(zeros({1}, DType::f64, card(1)));
    assign_grad(a, full({1}, 3, DType::f64, card(0))), assign_grad(b, full({1}, 4, DType::f64, card(1)));
    SGD sgd({{"a", a}, {"b", b}}, {.lr = 1});
    CHECK(sgd.step({.clip_norm = 1}).item() == Approx(5).epsilon(1e-14));
    CHECK(a.item() == Approx(-3 / (5 + 1e-6)).epsilon(1e-12));
    CHECK(b.item() == Approx(-4 / (5 + 1e-6)).epsilon(1e-12));
}

#ifdef GRADUS_EMULATED
TEST_CASE("a clipped step gives its work to the card and does not wait", "[cuda][optimizer]") {
    if (!have_cards(1)) return;
    const NamedTensors parameters = parameters_on(card(0), false);
    Adam adam(parameters);
    for (int step = 0; step < 3; ++step) {
        for (std::size_t i = 0; i < parameters.size(); ++i)
            assign_grad(parameters[i].second, numbers(settings[i].n, settings[i].dtype, card(0), unsigned(i)));
        const std::int64_t before = emulation::host_waits();
        const Tensor norm = adam.step({.clip_norm = 1});
        CHECK(emulation::host_waits() == before);
        CHECK(norm.item() > 0);
    }
}
#endif

}  // namespace
}  // namespace gradus::tests
