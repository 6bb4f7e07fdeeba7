// The tape: order of hooks, what is kept and freed, gradients of gradients, refusals, anomaly mode, steady memory.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return require_grad(Tensor::from(values, shape, Device{}));
}
Tensor leaf(std::initializer_list<float> values) { return leaf(values, {std::int64_t(values.size())}); }

TEST_CASE("a leaf is settled the moment its last consumer is done: c2b1a0", "[autograd]") {
    // Letters: a weight's gradient is complete; digits: the gradient of the layer's input is.
    std::string log;
    const auto note = [&log](const Tensor& x, const char* name) {
        on_grad(x, [&log, name](const Tensor&) { log += name; });
    };
    Tensor h = require_grad(ones({2, 2}, DType::f32, Device{}));
    for (const auto& [weight, input] : {std::pair("a", "0"), {"b", "1"}, {"c", "2"}}) {
        const Tensor w = require_grad(ones({2, 2}, DType::f32, Device{}));
        note(w, weight);
        note(h, input);
        h = mul(w, h);  // with the weight first a plain ready stack would fire every weight's hook at the end
    }
    backward(sum(h));
    CHECK(log == "c2b1a0");
}

TEST_CASE("a hook sees the whole gradient, once", "[autograd]") {
    const Tensor x = leaf({2});
    int calls = 0;
    double seen = 0;
    on_grad(x, [&](const Tensor& g) {
        ++calls;
        seen = g.item();
    });
    const Tensor y = x * x;
    double inner = 0;
    on_grad(y, [&](const Tensor& g) { inner += g.item(); });
    backward(y * 3 + y);
    CHECK(calls == 1);
    CHECK(seen == 16);
    CHECK(inner == 4);
    CHECK(error_of([] { on_grad(ones({1}, DType::f32, Device{}), [](const Tensor&) {}); }) ==
          "on_grad: the tensor wants no gradient: call require_grad first");
}

TEST_CASE("gradients accumulate over backwards until they are zeroed", "[autograd]") {
    const Tensor x = leaf({3});
    backward(square(x));
    backward(square(x));
    CHECK(x.grad().item() == 12);
    zero_grad(x);
    CHECK_FALSE(x.grad().defined());
    backward(square(x));
    CHECK(x.grad().item() == 6);
}

TEST_CASE("a retained graph gives the same gradient again", "[autograd]") {
    const Tensor x = leaf({1, 2});
    const Tensor loss = sum(exp(x) * x);
    backward(loss, {}, {.retain_graph = true});
    const std::vector<double> once = x.grad().to_vector<double>();
    backward(loss);
    CHECK(differs(x.grad(), {2 * once[0], 2 * once[1]}, exactly) == "");
    CHECK(contains(error_of([&] { backward(loss); }), "backward: the graph was freed by an earlier backward"));
}

TEST_CASE("what has no past, and what is no single number, cannot start a backward", "[autograd]") {
    const Tensor x = leaf({1, 2}), plain = ones({2}, DType::f32, Device{});
    CHECK(error_of([&] { backward(sum(plain)); }) ==
          "backward: the tensor of shape () has no past: nothing it was computed from wants a gradient (or it was "
          "computed "
          "under NoGrad)");
    CHECK(error_of([&] { backward(square(x)); }) ==
          "backward: a result of shape (2,) needs a gradient to start from: reduce it to one element (sum, mean) or "
          "pass a "
          "tensor of its shape");
    CHECK(error_of([&] { backward(square(x), ones({1}, DType::f32, Device{})); }) ==
          "backward: the gradient's shape (1,) is not that of the result, (2,)");
    CHECK(error_of([&] { gradients(sum(x), {plain}); }) == "gradients: an x of shape (2,) wants no gradient");
    backward(square(x), ones({2}, DType::f64, Device{}));
    CHECK(differs(x.grad(), {2, 4}, exactly) == "");
}

TEST_CASE("only floating leaves want gradients", "[autograd]") {
    const Tensor n = arange(3, DType::i64, Device{});
    CHECK(error_of([&] { require_grad(n); }) == "require_grad: only floating tensors have gradients: got i64");
    const Tensor y = square(leaf({1}));
    CHECK(error_of([&] { require_grad(y, false); }) ==
          "require_grad: the tensor is the result of a recorded op: use detach first");
    const Tensor x = leaf({1});
    require_grad(x, false);
    CHECK_FALSE(square(x).requires_grad());
}

TEST_CASE("nothing is recorded for what wants no gradient", "[autograd]") {
    const Tensor x = leaf({1, 2}), plain = ones({2}, DType::f32, Device{});
    CHECK_FALSE((plain * 2).requires_grad());
    CHECK((plain * x).requires_grad());
    CHECK_FALSE(less(x, plain).requires_grad());
    CHECK_FALSE(argmax(x, 0).requires_grad());
    CHECK_FALSE(detach(x * 2).requires_grad());
    const NoGrad scope;
    CHECK_FALSE((x * 2).requires_grad());
    CHECK(x.requires_grad());
}

TEST_CASE("detach shares memory and cuts the past", "[autograd]") {
    const Tensor x = leaf({3});
    const Tensor y = detach(x * 2);
    CHECK(y.item() == 6);
    backward(sum(y * x));
    CHECK(x.grad().item() == 6);
    CHECK(&detach(x).storage() == &x.storage());
}

TEST_CASE("a modified saved result is noticed too", "[autograd]") {
    const Tensor x = leaf({1});
    const Tensor y = softmax(x, 0);  // its rule keeps the result
    fill_(y, 7);
    CHECK(contains(error_of([&] { backward(y); }), "that an op saved for its gradient was modified in place"));
    const Tensor z = neg(x);  // its rule keeps nothing
    fill_(z, 7);
    backward(z);
    CHECK(x.grad().item() == -1);
}

TEST_CASE("gradients leaves the leaves' own alone and says where nothing flows", "[autograd]") {
    const Tensor x = leaf({2}), w = leaf({5}), unused = leaf({1});
    const Tensor h = x * w;
    const std::vector<Tensor> g = gradients(square(h), {x, h, unused, x});
    CHECK(g[0].item() == 100);
    CHECK(g[1].item() == 20);
    CHECK_FALSE(g[2].defined());
    CHECK(g[3].item() == 100);
    CHECK_FALSE(x.grad().defined());
    CHECK_FALSE(g[0].requires_grad());
}

TEST_CASE("gradients of gradients", "[autograd]") {
    const Tensor x = leaf({2});
    const BackwardOptions again{.create_graph = true};
    const Tensor y = x * x * x;
    const Tensor first = gradients(y, {x}, again)[0];
    const Tensor second = gradients(first, {x}, again)[0];
    const Tensor third = gradients(second, {x}, again)[0];
    CHECK(first.item() == 12);
    CHECK(second.item() == 12);
    CHECK(third.item() == 6);
    const Tensor t = leaf({0.5f});
    const Tensor slope = gradients(tanh(t), {t}, again)[0];
    const double value = std::tanh(0.5);
    CHECK(differs(gradients(slope, {t})[0], {-2 * value * (1 - value * value)}) == "");
    // A penalty on the gradient trains like any loss.
    const Tensor w = leaf({3});
    const Tensor penalty = square(gradients(sum(w * x * x), {x}, again)[0]);
    backward(penalty);
    CHECK(w.grad().item() == 2 * 12 * 4);
}

TEST_CASE("create_graph lets the leaf's gradient carry a past", "[autograd]") {
    const Tensor x = leaf({3});
    backward(x * x * x, {}, {.create_graph = true});
    CHECK(x.grad().requires_grad());
    CHECK(gradients(x.grad(), {x})[0].item() == 18);
    zero_grad(x);  // the gradient's graph holds the leaf, and the leaf its gradient
}

TEST_CASE("assign_grad takes what fits its leaf", "[autograd]") {
    const Tensor x = leaf({1, 2});
    assign_grad(x, Tensor::from({5.f, 6.f}, Device{}));
    CHECK(differs(x.grad(), {5, 6}, exactly) == "");
    CHECK(error_of([&] { assign_grad(x, ones({3}, DType::f32, Device{})); }) ==
          "assign_grad: the gradient does not fit its leaf: expected (2,) f32");
    CHECK(error_of([&] { assign_grad(ones({1}, DType::f32, Device{}), x); }) ==
          "assign_grad: needs a leaf that wants a gradient: call require_grad first");
}

TEST_CASE("a leaf moves with its gradient, identity and hooks", "[autograd]") {
    const Tensor x = leaf({1, 2}), alias = x;
    int calls = 0;
    on_grad(x, [&](const Tensor&) { ++calls; });
    backward(sum(square(x)));
    move_leaf(x, Tensor::from({3.0, 4.0}, Device{}));
    CHECK(alias.dtype() == DType::f64);
    CHECK(alias.grad().dtype() == DType::f64);
    CHECK(differs(alias.grad(), {2, 4}, exactly) == "");
    backward(sum(square(alias)));
    CHECK(differs(x.grad(), {8, 12}, exactly) == "");
    CHECK(calls == 2);
    CHECK(error_of([&] { move_leaf(x, ones({3}, DType::f32, Device{})); }) ==
          "move_leaf: needs a leaf and a value of its shape: got (2,) and (3,)");
}

TEST_CASE("anomaly mode names the op, the direction and the shape", "[autograd]") {
    ThreadState state = thread_state();
    state.anomaly = true;
    const ThreadStateGuard guard(state);
    const Tensor x = leaf({-1, 4});
    CHECK(error_of([&] { log(x); }) == "anomaly: log (forward) gave NaN or Inf in a tensor of shape (2,)");
    const Tensor zero = leaf({0, 4});
    const Tensor root = sqrt(zero);
    CHECK(error_of([&] { backward(sum(root)); }) ==
          "anomaly: sqrt (backward) gave NaN or Inf in a tensor of shape (2,)");
    CHECK_FALSE(zero.grad().defined());
    backward(sum(square(x)));
    CHECK(differs(x.grad(), {-2, 8}, exactly) == "");
}

TEST_CASE("anomaly mode names the module whose op it was", "[autograd]") {
    struct Named : Frame {
        std::string path() const override { return "decoder.norm"; }
    } frame;
    ThreadState state = thread_state();
    state.anomaly = true;
    const Tensor zero = leaf({0});
    Tensor root;
    {
        state.frame = &frame;
        const ThreadStateGuard guard(state);
        root = sqrt(zero);
    }
    state.frame = nullptr;
    const ThreadStateGuard guard(state);
    CHECK(error_of([&] { backward(root); }) ==
          "anomaly: sqrt (backward) gave NaN or Inf in a tensor of shape (1,) in module decoder.norm");
}

TEST_CASE("a failed backward leaves the graph fit for another", "[autograd]") {
    const Tensor x = leaf({1});
    bool fail_once = true;
    const Tensor y = square(x);
    on_grad(y, [&](const Tensor&) {
        if (fail_once) fail("hook: on purpose");
    });
    const Tensor loss = sum(y);
    CHECK(error_of([&] { backward(loss, {}, {.retain_graph = true}); }) == "hook: on purpose");
    fail_once = false;
    backward(loss);
    CHECK(x.grad().item() == 2);
}

TEST_CASE("a steady training step asks the system for nothing and leaves nothing behind", "[autograd][pool]") {
    Tensor w1 = full({64, 128}, 0.01, DType::f32, Device{}), w2 = full({128, 10}, 0.02, DType::f32, Device{}),
           b1 = zeros({128}, DType::f32, Device{});
    const Tensor x = reshape(mul(arange(32 * 64, DType::f32, Device{}), 1e-3), {32, 64});
    const Tensor targets = cast(floor(mul(arange(32, DType::f32, Device{}), 0.3)), DType::i64);
    const auto step = [&] {
        for (const Tensor& w : {w1, w2, b1}) {
            require_grad(w);
            zero_grad(w);
        }
        const Tensor h = layer_norm(relu(matmul(x, w1) + b1));
        backward(cross_entropy(matmul(dropout(h, 0.1), w2), targets));
        const NoGrad scope;
        for (const Tensor& w : {w1, w2, b1}) copy_(w, w - 0.01 * w.grad());
    };
    for (int i = 0; i < 5; ++i) step();
    const PoolStatistics before = pool_statistics();
    for (int i = 0; i < 20; ++i) step();
    const PoolStatistics after = pool_statistics();
    CHECK(after.system_allocations == before.system_allocations);
    CHECK(after.in_use == before.in_use);
    CHECK(after.allocations > before.allocations);
}

}  // namespace
}  // namespace gradus::tests
