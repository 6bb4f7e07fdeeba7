// No result depends on the number of threads: the same bits for 1, 2, 3 and 5.
#include <signal.h>
#include <sys/time.h>

#include <functional>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/parallel.h"
#include "gradus/tests/support.h"

namespace gradus {
namespace {

using Results = std::vector<std::vector<float>>;

/// Value and gradients of f at the inputs.
Results run(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Shape>& shapes) {
    Generator rng(7);
    manual_seed(3);
    std::vector<Tensor> xs;
    for (const Shape& shape : shapes) xs.push_back(require_grad(normal(shape, 0, 1, DType::f32, Device{}, &rng)));
    const Tensor y = f(xs);
    backward(sum(y * normal(y.shape(), 0, 1, DType::f32, Device{}, &rng)));
    Results results{y.to_vector<float>()};
    for (const Tensor& x : xs) results.push_back(x.grad().to_vector<float>());
    return results;
}

struct Threads {
    int before = thread_count();
    ~Threads() { set_thread_count(before); }
};

}  // namespace

TEST_CASE("no kernel's result depends on the number of threads", "[threads]") {
    const Threads restore;
    const auto same = [](const char* name, const std::vector<Shape>& shapes,
                         const std::function<Tensor(const std::vector<Tensor>&)>& f) {
        INFO(name);
        set_thread_count(1);
        const Results expected = run(f, shapes);
        for (const int threads : {2, 3, 5}) {
            set_thread_count(threads);
            CHECK(run(f, shapes) == expected);
        }
    };
    using Xs = std::vector<Tensor>;
    same("matmul", {{130, 70}, {70, 210}}, [](const Xs& x) { return matmul(x[0], x[1]); });
    same("batched matmul", {{6, 33, 20}, {6, 20, 40}}, [](const Xs& x) { return matmul(x[0], x[1]); });
    same("linear", {{300, 64}, {96, 64}, {96}}, [](const Xs& x) { return linear(x[0], x[1], x[2]); });
    same("attention, one head of long sequences", {{1, 1, 200, 16}, {1, 1, 230, 16}, {1, 1, 230, 16}},
         [](const Xs& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true, .dropout = 0.1}); });
    same("attention, many heads", {{8, 4, 24, 16}, {8, 4, 24, 16}, {8, 4, 24, 16}},
         [](const Xs& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); });
    same("layer norm", {{700, 48}, {48}, {48}}, [](const Xs& x) { return layer_norm(x[0], x[1], x[2]); });
    same("residual norm", {{700, 48}, {700, 48}, {48}, {48}},
         [](const Xs& x) { return dropout_add_layer_norm(x[0], x[1], x[2], x[3], 0.1); });
    same("rms norm", {{700, 48}, {48}}, [](const Xs& x) { return rms_norm(x[0], x[1]); });
    same("softmax", {{400, 100}}, [](const Xs& x) { return softmax(x[0], -1); });
    same("cross entropy", {{600, 50}}, [](const Xs& x) {
        return cross_entropy(x[0], cast(arange(600, DType::i64, Device{}) * 7.0 -
                                            floor(arange(600, DType::f64, Device{}) * 7.0 / 50.0) * 50.0,
                                        DType::i64));
    });
    same("embedding", {{40, 32}}, [](const Xs& x) {
        return embedding(cast(floor(uniform({500}, 0, 40, DType::f32, Device{})), DType::i64), x[0]);
    });
    same("dropout", {{90000}}, [](const Xs& x) { return dropout(x[0], 0.3); });
}

namespace {

volatile sig_atomic_t ticks = 0;

}  // namespace

// The products' generated code uses memory below the stack pointer, where a signal handler's frame lands.
TEST_CASE("signal handlers do not disturb products", "[matmul]") {
    struct sigaction action = {}, before = {};
    action.sa_handler = [](int) { ticks = ticks + 1; };
    sigaction(SIGALRM, &action, &before);
    const itimerval often{{0, 500}, {0, 500}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    Generator rng(1);
    const Tensor a = normal({96, 200}, 0, 1, DType::f32, Device{}, &rng),
                 b = normal({200, 333}, 0, 1, DType::f32, Device{}, &rng);
    const std::vector<float> expected = matmul(a, b).to_vector<float>();
    const std::vector<float> transposed = matmul(transpose(b), transpose(a)).to_vector<float>();
    bool same = true;
    for (int i = 0; i < 400; ++i) {
        same = same && matmul(a, b).to_vector<float>() == expected;
        same = same && matmul(transpose(b), transpose(a)).to_vector<float>() == transposed;
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before, nullptr);
    CHECK(same);
    CHECK(ticks > 0);
}

}  // namespace gradus
