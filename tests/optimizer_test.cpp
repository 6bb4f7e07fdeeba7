// Optimizers step by step against their formulas, written out here in f64.
#include <cmath>
#include <limits>
#include <vector>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/parallel.h"
#include "gradus/kernels/update.h"
#include "gradus/nn/optimizer.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

Tensor leaf(const std::vector<double>& values) { return require_grad(Tensor::from(values, Device{})); }
Tensor leaf_f32(const std::vector<float>& values) { return require_grad(Tensor::from(values, Device{})); }
void give(const Tensor& p, const std::vector<double>& g) { assign_grad(p, cast(Tensor::from(g, Device{}), p.dtype())); }

/// A gradient that differs by element and step and changes its sign.
std::vector<double> gradient_at(int step, std::size_t n) {
    std::vector<double> g(n);
    for (std::size_t i = 0; i < n; ++i) g[i] = std::sin(1.7 * step + 0.9 * double(i)) + 0.1 * double(i % 3);
    return g;
}

struct PlainSgd {
    SgdOptions o;
    std::vector<double> p, b;
    void step(const std::vector<double>& gradient, double scale = 1) {
        const bool first = b.empty();
        if (first) b.resize(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            const double g = gradient[i] * scale + o.weight_decay * p[i];
            b[i] = first ? g : o.momentum * b[i] + (1 - o.dampening) * g;
            const double direction = o.momentum == 0 ? g : o.nesterov ? g + o.momentum * b[i] : b[i];
            p[i] -= o.lr * direction;
        }
    }
};

struct PlainAdam {
    AdamOptions o;
    bool decoupled;
    std::vector<double> p, m, v;
    int t = 0;
    void step(const std::vector<double>& gradient, double scale = 1) {
        ++t;
        m.resize(p.size()), v.resize(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            double g = gradient[i] * scale;
            if (decoupled)
                p[i] *= 1 - o.lr * o.weight_decay;
            else
                g += o.weight_decay * p[i];
            m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
            v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
            p[i] -= o.lr / (1 - std::pow(o.beta1, t)) * m[i] /
                    (std::sqrt(v[i]) / std::sqrt(1 - std::pow(o.beta2, t)) + o.eps);
        }
    }
};

/// The rounding of `steps` updates of numbers near 1, a few operations each.
void close(const std::vector<double>& got, const std::vector<double>& expected, DType dtype, int steps) {
    const double unit = dtype == DType::f64   ? 0x1p-53
                        : dtype == DType::f32 ? 0x1p-24
                        : dtype == DType::f16 ? 0x1p-11
                                              : 0x1p-8;
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        INFO("element " << i);
        CHECK(std::abs(got[i] - expected[i]) <= 16 * steps * unit * (1 + std::abs(expected[i])));
    }
}

const std::vector<double> start = {0.5, -1.25, 2.0, 0.75, -0.5, 1.5, -2.0};

}  // namespace

TEST_CASE("SGD follows its formula for every option", "[optimizer]") {
    const std::vector<SgdOptions> variants = {
        {.lr = 0.1},
        {.lr = 0.1, .weight_decay = 0.2},
        {.lr = 0.1, .momentum = 0.9},
        {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01},
        {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
    };
    for (const DType dtype : {DType::f64, DType::f32}) {
        for (const SgdOptions& options : variants) {
            const Tensor p = require_grad(clone(cast(Tensor::from(start, Device{}), dtype)));
            SGD sgd({{"p", p}}, options);
            PlainSgd plain{options, start, {}};
            for (int step = 0; step < 5; ++step) {
                const auto g = gradient_at(step, start.size());
                give(p, g);
                sgd.step();
                plain.step(g);
                close(p.to_vector<double>(), plain.p, dtype, step + 1);
            }
        }
    }
}

TEST_CASE("Adam and AdamW follow their formulas", "[optimizer]") {
    const AdamOptions options{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
    for (const DType dtype : {DType::f64, DType::f32}) {
        const Tensor p = require_grad(clone(cast(Tensor::from(start, Device{}), dtype)));
        const Tensor q = require_grad(clone(cast(Tensor::from(start, Device{}), dtype)));
        Adam adam({{"p", p}}, options);
        AdamW adamw({{"q", q}}, {.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1});
        PlainAdam plain{options, false, start, {}, {}}, plain_w{options, true, start, {}, {}};
        for (int step = 0; step < 8; ++step) {
            const auto g = gradient_at(step, start.size());
            give(p, g), give(q, g);
            adam.step(), adamw.step();
            plain.step(g), plain_w.step(g);
            close(p.to_vector<double>(), plain.p, dtype, step + 1);
            close(q.to_vector<double>(), plain_w.p, dtype, step + 1);
        }
    }
}

TEST_CASE("optimizer defaults", "[optimizer]") {
    const Tensor p = leaf({1.0});
    const Adam adam({{"p", p}});
    CHECK(adam.options().lr == 1e-3);
    CHECK(adam.options().beta1 == 0.9);
    CHECK(adam.options().beta2 == 0.999);
    CHECK(adam.options().eps == 1e-8);
    CHECK(adam.options().weight_decay == 0);
    CHECK(AdamW({{"p", p}}).options().weight_decay == 0.01);
}

TEST_CASE("BB-123 Adam: eps and bias correction", "[optimizer]") {
    const Tensor p = leaf({0.0});
    Adam adam({{"p", p}}, {.lr = 0.1, .eps = 0.01});
    for (const double expected : {-0.05, -0.10, -0.15}) {
        give(p, {0.01});
        adam.step();
        CHECK(p.to_vector<double>()[0] == Approx(expected).epsilon(1e-12));
    }
}

TEST_CASE("BB-126 optimizer state follows the parameter", "[optimizer]") {
    const Tensor p = leaf_f32({1.0f, 2.0f});
    Adam adam({{"p", p}}, {.lr = 0.1});
    give(p, {1.0, -1.0});
    adam.step();
    const auto before = p.to_vector<double>();
    move_leaf(p, cast(detach(p), DType::f64));
    give(p, {1.0, -1.0});
    adam.step();
    const auto after = p.to_vector<double>();
    CHECK(after[0] == Approx(before[0] - 0.1).epsilon(1e-5));  // a constant gradient moves Adam by lr a step
    CHECK(after[1] == Approx(before[1] + 0.1).epsilon(1e-5));
    for (const auto& [name, tensor] : adam.state_dict())
        if (name == "state.p.mean") CHECK(tensor.dtype() == DType::f64);
}

TEST_CASE("BB-126 optimizer state follows the parameter to another device", "[optimizer]") {
    if (device_count(Device::cpu) < 2) return;  // needs GRADUS_CPU_DEVICES=2
    const Device other{Device::cpu, 1};
    const Tensor p = leaf_f32({1.0f});
    SGD sgd({{"p", p}}, {.lr = 0.1, .momentum = 0.5});
    give(p, {1.0});
    sgd.step();
    move_leaf(p, to(detach(p), other));
    assign_grad(p, to(Tensor::from({1.0f}, Device{}), other));
    sgd.step();
    CHECK(p.device() == other);
    CHECK(p.to_vector<double>()[0] == Approx(1 - 0.1 - 0.15).epsilon(1e-6));
    for (const auto& [name, tensor] : sgd.state_dict())
        if (name == "state.p.momentum") CHECK(tensor.device() == other);
}

TEST_CASE("BB-127 no gradient means no update", "[optimizer]") {
    const Tensor absent = leaf({2.0}), zero = leaf({2.0}), frozen = Tensor::from({2.0}, Device{});
    SGD sgd({{"absent", absent}, {"zero", zero}, {"frozen", frozen}}, {.lr = 1, .momentum = 0.9, .weight_decay = 0.1});
    give(zero, {0.0});
    sgd.step();
    CHECK(absent.item() == 2.0);
    CHECK(frozen.item() == 2.0);
    CHECK(zero.item() == Approx(1.8).epsilon(1e-15));
    for (const auto& [name, tensor] : sgd.state_dict()) {
        CHECK_FALSE(contains(name, "absent"));
        CHECK_FALSE(contains(name, "frozen"));
    }
}

TEST_CASE("BB-128 decoupled decay", "[optimizer]") {
    const Tensor p = leaf({1.0}), q = leaf({1.0});
    AdamW adamw({{"p", p}}, {.lr = 0.1, .weight_decay = 0.5});
    Adam adam({{"q", q}}, {.lr = 0.1, .weight_decay = 0.5});
    give(p, {0.0}), give(q, {0.0});
    adamw.step(), adam.step();
    CHECK(p.item() == Approx(0.95).epsilon(1e-12));
    CHECK(q.item() == Approx(0.90).epsilon(1e-7));  // eps beside a root of 0.5
}

TEST_CASE("16-bit parameters are updated through f32 with f32 moments", "[optimizer]") {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        const Tensor p = require_grad(cast(Tensor::from(start, Device{}), dtype));
        const Tensor q = require_grad(cast(Tensor::from(start, Device{}), dtype));
        const auto begin = p.to_vector<double>();
        Adam adam({{"p", p}}, {.lr = 0.125});
        SGD sgd({{"q", q}}, {.lr = 0.125, .momentum = 0.5});
        const auto g = std::vector<double>{0.5, -0.25, 1, -1, 0.75, 2, -2};  // exact in both
        PlainAdam plain{{.lr = 0.125}, false, begin, {}, {}};
        PlainSgd plain_sgd{{.lr = 0.125, .momentum = 0.5}, begin, {}};
        for (int step = 0; step < 2; ++step) {
            give(p, g), give(q, g);
            adam.step(), sgd.step();
            plain.step(g), plain_sgd.step(g);
            close(p.to_vector<double>(), plain.p, dtype, 1);
            close(q.to_vector<double>(), plain_sgd.p, dtype, 1);
        }
        for (const auto& [name, tensor] : adam.state_dict())
            if (name == "state.p.mean_square") CHECK(tensor.dtype() == DType::f32);
    }
}

TEST_CASE("a gradient scale is the same as scaled gradients", "[optimizer]") {
    const Tensor p = leaf(start), q = leaf(start);
    Adam adam({{"p", p}}, {.lr = 0.1, .weight_decay = 0.1});
    SGD sgd({{"q", q}}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
    PlainAdam plain{{.lr = 0.1, .weight_decay = 0.1}, false, start, {}, {}};
    PlainSgd plain_sgd{{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, start, {}};
    for (int step = 0; step < 3; ++step) {
        const auto g = gradient_at(step, start.size());
        give(p, g), give(q, g);
        adam.step({.gradient_scale = 0.3}), sgd.step({.gradient_scale = 0.3});
        plain.step(g, 0.3), plain_sgd.step(g, 0.3);
    }
    close(p.to_vector<double>(), plain.p, DType::f64, 3);
    close(q.to_vector<double>(), plain_sgd.p, DType::f64, 3);
}

TEST_CASE("an update writes in place, bumps the version and keeps the gradient", "[optimizer]") {
    const Tensor p = leaf({1.0, 2.0}), other = p;
    const auto version = p.version();
    const void* address = p.address();
    SGD sgd({{"p", p}}, {.lr = 1});
    give(p, {1.0, 1.0});
    sgd.step();
    CHECK(p.version() > version);
    CHECK(other.address() == address);
    CHECK(other.to_vector<double>() == std::vector<double>{0, 1});
    CHECK(p.grad().to_vector<double>() == std::vector<double>{1, 1});
    sgd.zero_grad();
    CHECK_FALSE(p.grad().defined());
}

TEST_CASE("a step after forward makes backward refuse the old graph", "[optimizer]") {
    const Tensor p = leaf({2.0});
    const Tensor loss = sum(p * p);
    SGD sgd({{"p", p}}, {.lr = 1});
    give(p, {1.0});
    sgd.step();
    CHECK(contains(error_of([&] { backward(loss); }), "modified in place"));
}

TEST_CASE("an expanded gradient is taken by its values", "[optimizer]") {
    const Tensor p = leaf({1.0, 2.0, 3.0});
    backward(sum(p));
    SGD sgd({{"p", p}}, {.lr = 0.5});
    sgd.step();
    CHECK(p.to_vector<double>() == std::vector<double>{0.5, 1.5, 2.5});
}

TEST_CASE("parameter groups have options of their own", "[optimizer]") {
    const Tensor a = leaf({1.0}), b = leaf({1.0});
    SGD sgd({{{{"a", a}}, {.lr = 0.1}}, {{{"b", b}}, {.lr = 0.01, .weight_decay = 1}}});
    give(a, {1.0}), give(b, {1.0});
    sgd.step();
    CHECK(a.item() == Approx(0.9).epsilon(1e-15));
    CHECK(b.item() == Approx(0.98).epsilon(1e-15));
    CHECK(sgd.lr(1) == 0.01);
    sgd.set_lr(0, 1);
    sgd.step();
    CHECK(b.item() == Approx(0.98).epsilon(1e-15));
}

TEST_CASE("results do not depend on the number of threads", "[optimizer][threads]") {
    const std::int64_t n = 3 * 16384 + 77;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) values[std::size_t(i)] = float(std::sin(double(i)));
    const Tensor g = Tensor::from(values, Device{});
    const auto run = [&] {
        const Tensor p = require_grad(Tensor::from(values, Device{}));
        Adam adam({{"p", p}}, {.lr = 0.01, .weight_decay = 0.1});
        for (int step = 0; step < 3; ++step) assign_grad(p, clone(g)), adam.step({.gradient_scale = 0.7});
        return p.to_vector<float>();
    };
    const int before = thread_count();
    set_thread_count(1);
    const auto one = run();
    const auto sum = [&] { return kernels::sums_of_squares({&g, 1}).to_vector<double>().back(); };
    const double sum_one = sum();
    set_thread_count(3);
    CHECK(run() == one);
    CHECK(sum() == sum_one);
    set_thread_count(before);
    double exact = 0;
    for (const float x : values) exact += double(x) * double(x);
    CHECK(sum_one == Approx(exact).epsilon(1e-12));
}

TEST_CASE("optimizers refuse what cannot be right", "[optimizer]") {
    const Tensor p = leaf({1.0, 2.0});
    CHECK(contains(error_of([&] { SGD({{"a", p}, {"b", p}}, {.lr = 1}); }), "'b' and 'a' are one parameter"));
    CHECK(contains(error_of([&] { SGD({{"a", p}, {"a", leaf({1.0})}}, {.lr = 1}); }), "two parameters are named 'a'"));
    CHECK(contains(error_of([&] { SGD({{"a", p}, {"b", require_grad(detach(p))}}, {.lr = 1}); }), "are one parameter"));
    CHECK(contains(error_of([&] { Adam({}, AdamOptions{}); }), "has no parameters"));
    CHECK(contains(error_of([&] { Adam({{"p", p * 2}}); }), "result of an op"));
    CHECK(contains(error_of([&] { Adam({{"p", Tensor::from({1}, Device{})}}); }), "must be a floating leaf"));
    CHECK(contains(error_of([&] { Adam({{"p", p}}, {.beta1 = 1}); }), "betas"));
    CHECK(contains(error_of([&] { Adam({{"p", p}}, {.lr = -1}); }), "got -1"));
    CHECK(contains(error_of([&] { SGD({{"p", p}}, {.lr = 1, .nesterov = true}); }), "nesterov needs a momentum"));
    CHECK(contains(error_of([&] { Adam({{"p", p}}).lr(1); }), "no group 1"));
}

TEST_CASE("check_finite names the parameter and changes nothing", "[optimizer]") {
    const Tensor a = leaf({1.0}), b = leaf({1.0});
    Adam adam({{"a", a}, {"encoder.b", b}});
    give(a, {1.0}), give(b, {std::numeric_limits<double>::infinity()});
    CHECK(contains(error_of([&] { adam.step({.check_finite = true}); }), "'encoder.b' holds NaN or Inf"));
    CHECK(a.item() == 1.0);
    give(b, {1.0});
    adam.step({.check_finite = true});
    CHECK(a.item() == Approx(1 - 1e-3));
}

TEST_CASE("a saved optimizer continues bit for bit", "[optimizer]") {
    const Tensor p = leaf_f32({0.5f, -1.5f, 2.0f}), unused = leaf_f32({1.0f});
    const Tensor q = leaf_f32({0, 0, 0}), unused_q = leaf_f32({1.0f});
    AdamW first({{"p", p}, {"unused", unused}}, {.lr = 0.1, .weight_decay = 0.2});
    for (int step = 0; step < 3; ++step) give(p, gradient_at(step, 3)), first.step();
    AdamW second({{"p", q}, {"unused", unused_q}}, {.lr = 0.7});
    copy_(q, detach(p));
    second.load_state_dict(first.state_dict());
    CHECK(second.lr() == 0.1);
    CHECK(second.options().weight_decay == 0.2);
    for (int step = 3; step < 6; ++step) {
        give(p, gradient_at(step, 3)), give(q, gradient_at(step, 3));
        first.step(), second.step();
        CHECK(p.to_vector<float>() == q.to_vector<float>());
    }
    CHECK(unused_q.item() == 1.0);
}

TEST_CASE("loading an optimizer's state lists every fault and changes nothing", "[optimizer]") {
    const Tensor p = leaf_f32({1, 2});
    Adam adam({{"p", p}});
    give(p, {1.0, 1.0});
    adam.step();
    NamedTensors state = adam.state_dict();
    NamedTensors wrong;
    for (const auto& [name, tensor] : state) {
        if (name == "group.0.beta1") continue;
        if (name == "state.p.mean")
            wrong.emplace_back(name, Tensor::from({1.0f, 2.0f, 3.0f}, Device{}));
        else
            wrong.emplace_back(name, tensor);
    }
    wrong.emplace_back("state.other.steps", Tensor::from({std::int64_t(1)}, {}, Device{}));
    const std::string error = error_of([&] { adam.load_state_dict(wrong); });
    CHECK(contains(error, "missing: 'group.0.beta1'"));
    CHECK(contains(error, "unlike: 'state.p.mean': expected (2,) f32, got (3,) f32"));
    CHECK(contains(error, "unexpected: 'state.other.steps'"));
    const NamedTensors after = adam.state_dict();
    REQUIRE(after.size() == state.size());
    for (std::size_t i = 0; i < state.size(); ++i)
        CHECK(after[i].second.to_vector<double>() == state[i].second.to_vector<double>());
    adam.load_state_dict(state);
}
