// Cross-entropy over a vocabulary, and the embedding at the other end of the model.
#include "bench.h"

namespace gradus::bench {
namespace {

const bool registered = [] {
    for (const Shape& shape : {Shape{3072, 8000}, Shape{256, 50000}}) {
        const std::string size = std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
        add("cross_entropy/" + size, [=](benchmark::State& state) {
            const NoGrad no_grad;
            const Tensor x = numbers(shape), targets = ids({shape[0]}, 0, shape[1]);
            measure(state, {.bytes = bytes_of(x)}, [&] { cross_entropy(x, targets); });
        });
        add("cross_entropy/forward_backward/" + size, [=](benchmark::State& state) {
            const Tensor x = numbers(shape), targets = ids({shape[0]}, 0, shape[1]);
            // The logits are read once and the gradient is written once.
            measure(state, {.bytes = 2 * bytes_of(x)},
                    forward_backward({x}, [=] { return cross_entropy(x, targets); }));
        });
    }
    add("embedding/forward_backward/3072_of_8000x256", [](benchmark::State& state) {
        const Tensor table = numbers({8000, 256}), tokens = ids({128, 24}, 0, 8000);
        // Rows read and written, then the gradient's rows read and the whole gradient written.
        measure(state, {.bytes = 3 * 3072 * 256 * 4.0 + bytes_of(table)},
                forward_backward({table}, [=] { return embedding(tokens, table); }));
    });
    return true;
}();

}  // namespace
}  // namespace gradus::bench
