// The optimizers' passes over a model's parameters.
#include "gradus/kernels/update.h"
#include "bench.h"

namespace gradus::bench {
namespace {

constexpr std::int64_t parameters = 11'000'000;

const bool registered = [] {
    add("adam/11M", [](benchmark::State& state) {
        const Tensor p = numbers({parameters}), g = numbers({parameters}), m = zeros_like(p), v = zeros_like(p);
        kernels::AdamStep step;
        step.lr = 1e-3;
        const kernels::AdamUpdate update{p, g, m, v, step};
        measure(state, {.bytes = 7 * bytes_of(p)}, [&] { kernels::adam({&update, 1}, {}); });  // 4 read, 3 written
    });
    add("sgd_momentum/11M", [](benchmark::State& state) {
        const Tensor p = numbers({parameters}), g = numbers({parameters}), b = zeros_like(p);
        kernels::SgdStep step;
        step.lr = 1e-3, step.momentum = 0.9;
        const kernels::SgdUpdate update{p, g, b, step};
        measure(state, {.bytes = 5 * bytes_of(p)}, [&] { kernels::sgd({&update, 1}, {}); });
    });
    add("gradient_norm/11M", [](benchmark::State& state) {
        const Tensor g = numbers({parameters});
        measure(state, {.bytes = bytes_of(g)}, [&] { benchmark::DoNotOptimize(kernels::sums_of_squares({&g, 1})); });
    });
    return true;
}();

}  // namespace
}  // namespace gradus::bench
