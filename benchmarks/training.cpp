// The whole training step of peers/seq2seq_torch.py: 3 + 3 layers, d 256, 8 heads, feed-forward 512, dropout 0.1,
// learned positions, vocabulary 8000, batch 128 of 24 tokens; cross-entropy, clip 1.0, Adam 5e-4; all in f32.
#include <sys/resource.h>

#include "card.h"
#include "gradus/nn/clip.h"
#include "gradus/nn/optimizer.h"
#include "gradus/nn/seq2seq.h"

namespace gradus::bench {
namespace {

constexpr std::int64_t batch = 128, length = 24, vocabulary = 8000;

std::int64_t page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/// The flops of all matrix products with weights, forward and backward, and those of attention. A linear layer costs 2
/// rows in out forward and twice that backward; attention has two products of 2 T S d forward and four backward, in
/// nine blocks.
double step_flops() {
    constexpr double rows = batch * length, d = 256, hidden = 512;
    const double encoder_layer = 4 * d * d + 2 * d * hidden, decoder_layer = 8 * d * d + 2 * d * hidden;
    const double weights = 3 * (encoder_layer + decoder_layer) + d * vocabulary;
    return 6 * rows * weights + 9 * 3 * 4.0 * batch * length * length * d;
}

void training(benchmark::State& state, Device device) {
    Generator rng(0);
    TransformerOptions options;
    options.source_vocabulary = options.target_vocabulary = vocabulary;
    options.d_model = 256, options.heads = 8, options.hidden = 512;
    options.encoder_layers = options.decoder_layers = 3;
    Transformer model(options, rng);
    model.to(device);
    model.train();
    AdamOptions adam;
    adam.lr = 5e-4;
    Adam optimizer(model.named_parameters(), adam);

    const Tensor source = to(ids({batch, length}, 2, vocabulary), device),
                 target = to(ids({batch, length + 1}, 2, vocabulary), device);
    const Tensor given = contiguous(slice(target, 1, 0, length)),
                 wanted = reshape(slice(target, 1, 1, length + 1), {batch * length});
    CrossEntropyOptions loss_options;
    loss_options.ignore_index = options.pad;

    double loss = 0;
    const auto step = [&] {
        optimizer.zero_grad();
        const Tensor logits = model(source, given);
        const Tensor value = cross_entropy(reshape(logits, {batch * length, vocabulary}), wanted, loss_options);
        backward(value);
        optimizer.step({.clip_norm = 1});
        loss = value.item();
    };
    // The first steps fill the pool; measure() runs two more that do not count.
    step(), step();
    const std::int64_t allocations = pool_statistics(device).system_allocations, faults = page_faults();
    std::int64_t steps = 0;
    const auto counted = [&] { step(), ++steps; };
    if (device.kind == Device::cpu)
        measure(state, {.flops = step_flops()}, counted);
    else
        measure_on_card(state, {.flops = step_flops()}, counted);
    state.counters["tokens/s"] = batch * length / state.counters["seconds"];
    state.counters["system_allocations"] = double(pool_statistics(device).system_allocations - allocations);
    state.counters["faults/step"] = double(page_faults() - faults) / double(steps);
    state.counters["loss"] = loss;
    state.counters["MB_peak"] = double(pool_statistics(device).peak) * 1e-6;
}

const bool registered = [] {
    const auto add_step = [](const char* name, Device device) {
        benchmark::RegisterBenchmark(name, training, device)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(10);
    };
    add_step("training/seq2seq_128x24x8000", Device{});
    if (have_real_card()) add_step("cuda/training/seq2seq_128x24x8000", bench_card);
    return true;
}();

}  // namespace
}  // namespace gradus::bench
