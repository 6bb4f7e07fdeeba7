// Long graphs, and several threads that each run their own forward and backward.
#include <pthread.h>

#include <functional>
#include <thread>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int slowdown = 10;
#else
constexpr int slowdown = 1;
#endif

/// Runs f on a thread whose stack has `bytes`: recursion over a long graph would overflow it.
void on_stack(std::size_t bytes, std::function<void()> f) {
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
    pthread_t thread;
    const auto run = [](void* work) -> void* {
        (*static_cast<std::function<void()>*>(work))();
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, run, &f) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

constexpr std::size_t mib = 1 << 20;

TEST_CASE("BB-055 a long chain is built, run and freed without recursion", "[autograd]") {
    for (const bool run : {true, false}) {
        double gradient = 1;
        on_stack(8 * mib, [&] {
            const Tensor x = require_grad(ones({1}, DType::f32, Device{}));
            Tensor y = x;
            for (int i = 0; i < 300000 / slowdown; ++i) y = y + 0 * y;
            if (run) {
                backward(y);
                gradient = x.grad().item();
            }
        });
        CHECK(gradient == 1);
    }
}

TEST_CASE("a chain of a million nodes", "[autograd][slow]") {
    double gradient = 0;
    on_stack(8 * mib, [&] {
        const Tensor x = require_grad(ones({1}, DType::f32, Device{}));
        Tensor y = x;
        for (int i = 0; i < 1000000 / slowdown; ++i) y = neg(y);
        backward(y, {}, {.retain_graph = true});
        gradient = x.grad().item();
    });
    CHECK(gradient == 1);
}

TEST_CASE("a graph as wide as it is deep is freed in any order", "[autograd]") {
    std::vector<Tensor> kept;
    on_stack(mib, [&] {
        const Tensor x = require_grad(ones({1}, DType::f32, Device{}));
        Tensor y = x;
        for (int i = 0; i < 20000 / slowdown; ++i) {
            y = neg(y);
            if (i % 100 == 0) kept.push_back(y);
        }
        y = Tensor();
        while (!kept.empty()) kept.erase(kept.begin() + std::ptrdiff_t(kept.size() / 2));
    });
    CHECK(kept.empty());
}

TEST_CASE("BB-066 threads run backward on a shared leaf, and no gradient is lost", "[autograd][threads]") {
    const int threads = 6, rounds = 300 / slowdown;
    const Tensor w = require_grad(ones({64, 64}, DType::f32, Device{}));
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t)
        workers.emplace_back([&, t] {
            for (int i = 0; i < rounds; ++i) backward(sum(w * double(1 + (t + i) % 3)));
        });
    double expected = 0;
    for (int t = 0; t < threads; ++t)
        for (int i = 0; i < rounds; ++i) expected += 1 + (t + i) % 3;
    for (std::thread& worker : workers) worker.join();
    CHECK(differs(w.grad(), std::vector<double>(64 * 64, expected), exactly) == "");
}

TEST_CASE("threads train their own models side by side, bit for bit as alone", "[autograd][threads]") {
    const auto train = [](float seed) {
        const Tensor x = reshape(mul(arange(32, DType::f32, Device{}), 0.03 * seed), {8, 4});
        Tensor w = full({4, 4}, 0.1 * seed, DType::f32, Device{});
        for (int step = 0; step < 20; ++step) {
            require_grad(w);
            backward(mean(square(tanh(matmul(x, w)) - 0.5)));
            w = detach(w - 0.1 * w.grad());
        }
        return w.to_vector<float>();
    };
    std::vector<std::vector<float>> alone, together(4);
    for (int t = 0; t < 4; ++t) alone.push_back(train(float(t + 1)));
    std::vector<std::thread> workers;
    for (int t = 0; t < 4; ++t) workers.emplace_back([&, t] { together[std::size_t(t)] = train(float(t + 1)); });
    for (std::thread& worker : workers) worker.join();
    for (std::size_t t = 0; t < 4; ++t) CHECK(alone[t] == together[t]);
}

TEST_CASE("grad mode belongs to its thread", "[autograd][threads]") {
    const NoGrad scope;
    bool other = false;
    std::thread([&] { other = grad_enabled(); }).join();
    CHECK(other);
    CHECK_FALSE(grad_enabled());
    std::thread([&, state = thread_state()] {
        const ThreadStateGuard guard(state);
        other = grad_enabled();
    }).join();
    CHECK_FALSE(other);
}

TEST_CASE("a graph built in one thread runs backward in another", "[autograd][threads]") {
    const Tensor x = require_grad(ones({3}, DType::f32, Device{}));
    Tensor loss;
    std::thread([&] { loss = sum(square(x)); }).join();
    std::thread([&] { backward(loss); }).join();
    CHECK(differs(x.grad(), {2, 2, 2}, exactly) == "");
}

}  // namespace
}  // namespace gradus::tests
