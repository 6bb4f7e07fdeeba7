// The families of kernels on a card by size: most of them wait for memory, so a row states its share of a plain copy.
// Their peers in PyTorch, by the same names: peers/kernels_torch.py.
#include "card.h"
#include "gradus/kernels/update.h"

namespace gradus::bench {
namespace {

using One = Tensor (*)(const Tensor&);

/// y = f(x) without a gradient: `passes` times the bytes of x are read and written.
void add_forward(const std::string& name, const Shape& shape, double passes, One f, DType dtype = DType::f32) {
    add_on_card("cuda/" + name, [=](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor x = card_numbers(shape, dtype);
        measure_on_card(state, {.bytes = passes * bytes_of(x)}, [&] { f(x); });
    });
}

/// Forward and backward of f.
void add_both(const std::string& name, const Shape& shape, double passes, One f, DType dtype = DType::f32) {
    add_on_card("cuda/" + name, [=](benchmark::State& state) {
        const Tensor x = card_numbers(shape, dtype);
        measure_on_card(state, {.bytes = passes * bytes_of(x)}, forward_backward({x}, [=] { return f(x); }));
    });
}

void add_pointwise() {
    for (const auto& [size, n] :
         {std::pair{"64K", std::int64_t(1) << 16}, {"8M", std::int64_t(1) << 23}, {"64M", std::int64_t(1) << 26}}) {
        const std::string at = std::string("/") + size;
        const Shape shape{n / 1024, 1024};
        add_on_card("cuda/pointwise/add" + at, [shape](benchmark::State& state) {
            const NoGrad no_grad;
            const Tensor x = card_numbers(shape), y = card_numbers(shape);
            measure_on_card(state, {.bytes = 3 * bytes_of(x)}, [&] { add(x, y); });
        });
        add_forward("pointwise/relu" + at, shape, 2, [](const Tensor& x) { return relu(x); });
        add_forward("pointwise/gelu" + at, shape, 2, [](const Tensor& x) { return gelu(x); });
        add_forward(
            "pointwise/gelu_bf16" + at, shape, 2, [](const Tensor& x) { return gelu(x); }, DType::bf16);
        add_forward("pointwise/add_row" + at, shape, 2, [](const Tensor& x) { return add(x, select(x, 0, 0)); });
        add_forward("pointwise/dropout" + at, shape, 2, [](const Tensor& x) { return dropout(x, 0.1); });
        add_forward("copy/clone" + at, shape, 2, [](const Tensor& x) { return clone(x); });
        add_forward("copy/transpose" + at, shape, 2, [](const Tensor& x) { return contiguous(transpose(x)); });
        add_forward("reduce/sum_all" + at, shape, 1, [](const Tensor& x) { return sum(x); });
        add_forward("reduce/sum_rows" + at, shape, 1, [](const Tensor& x) { return sum(x, {1}); });
        add_forward("reduce/sum_columns" + at, shape, 1, [](const Tensor& x) { return sum(x, {0}); });
    }
}

void add_rows() {
    struct Rows {
        std::int64_t rows, columns;
    };
    for (const auto& [rows, columns] : {Rows{65536, 256}, Rows{16384, 1024}, Rows{8192, 8000}, Rows{512, 131072}}) {
        const std::string at = "/" + std::to_string(rows) + "x" + std::to_string(columns);
        const Shape shape{rows, columns};
        add_forward("softmax" + at, shape, 2, [](const Tensor& x) { return softmax(x, -1); });
        add_both("softmax_backward" + at, shape, 5, [](const Tensor& x) { return softmax(x, -1); });
        add_forward("layer_norm" + at, shape, 2, [](const Tensor& x) { return layer_norm(x); });
        add_both("layer_norm_backward" + at, shape, 5, [](const Tensor& x) { return layer_norm(x); });
        add_on_card("cuda/cross_entropy" + at, [shape, rows = rows, columns = columns](benchmark::State& state) {
            const Tensor logits = card_numbers(shape), targets = card_ids({rows}, 0, columns);
            // Read for the sums, read again and written by the gradient.
            measure_on_card(state, {.bytes = 3 * bytes_of(logits)},
                            forward_backward({logits}, [=] { return cross_entropy(logits, targets); }));
        });
    }
}

void add_attention() {
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const std::int64_t length : {512, 2048})
            for (const bool backward_too : {false, true}) {
                const std::int64_t batch = 16384 / length, heads = 16, d = 64;
                const std::string name =
                    text("cuda/attention", backward_too ? "_backward" : "", dtype == DType::bf16 ? "_bf16" : "", "/",
                         batch, "x", heads, "x", length, "x", d);
                add_on_card(name, [=](benchmark::State& state) {
                    const Shape shape{batch, heads, length, d};
                    const Tensor q = card_numbers(shape, dtype), k = card_numbers(shape, dtype),
                                 v = card_numbers(shape, dtype);
                    const auto f = [=] { return scaled_dot_product_attention(q, k, v, {.causal = true}); };
                    // Two products forward and five backward, of which the causal mask leaves half.
                    const double product = double(batch * heads) * double(length * length) * double(d);
                    if (backward_too)
                        return measure_on_card(state, {.flops = 7 * product}, forward_backward({q, k, v}, f));
                    const NoGrad no_grad;
                    measure_on_card(state, {.flops = 2 * product}, f);
                });
            }
}

void add_updates() {
    for (const auto& [size, n] : {std::pair{"11M", std::int64_t(11'000'000)}, {"124M", std::int64_t(124'000'000)}}) {
        add_on_card(std::string("cuda/adam/") + size, [n = n](benchmark::State& state) {
            const Tensor p = card_numbers({n}), g = card_numbers({n}), m = zeros_like(p), v = zeros_like(p);
            kernels::AdamStep step;
            step.lr = 1e-3;
            const kernels::AdamUpdate update{p, g, m, v, step};
            measure_on_card(state, {.bytes = 7 * bytes_of(p)}, [&] { kernels::adam({&update, 1}, {}); });
        });
        add_on_card(std::string("cuda/gradient_norm/") + size, [n = n](benchmark::State& state) {
            const Tensor g = card_numbers({n});
            measure_on_card(state, {.bytes = bytes_of(g)}, [&] { kernels::sums_of_squares({&g, 1}); });
        });
    }
    add_on_card("cuda/embedding_backward/8000x512", [](benchmark::State& state) {
        const Tensor table = card_numbers({8000, 512}), places = card_ids({16384}, 0, 8000);
        measure_on_card(state, {.bytes = 3.0 * 16384 * 512 * 4 + bytes_of(table)},
                        forward_backward({table}, [=] { return embedding(places, table); }));
    });
    add_on_card("cuda/overhead/add/1", [](benchmark::State& state) {
        const NoGrad no_grad;
        const Tensor x = card_numbers({1});
        measure_on_card(state, {}, [&] { add(x, x); });
    });
}

const bool registered = (add_pointwise(), add_rows(), add_attention(), add_updates(), true);

}  // namespace
}  // namespace gradus::bench
