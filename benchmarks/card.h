// Rows of the benchmark table on a card; as in bench.h, with the card's own limit.
#pragma once

#include "bench.h"
#include "gradus/core/stream.h"

namespace gradus::bench {

/// The card that rows are measured on: the first one.
inline constexpr Device bench_card{Device::cuda, 0};

/// Does this build run on real cards, and is there one? Nothing is measured on emulated ones.
bool have_real_card();

/// y = x over 256 MB, longer than any cache: bytes read and written per second.
double copy_bandwidth();

/// Times `call` on the card's current stream, as bench.h's measure() does: many calls between two waits, until they
/// take a millisecond, so that starting work is hidden as in a program that never waits. The share is that of the
/// copy's bandwidth, measured right before and after.
void measure_on_card(benchmark::State& state, const Work& work, const std::function<void()>& call);

/// add() where there is a real card, nothing elsewhere.
void add_on_card(const std::string& name, std::function<void(benchmark::State&)> body);

/// numbers() and ids(), on the card.
inline Tensor card_numbers(const Shape& shape, DType dtype = DType::f32) {
    return to(numbers(shape, dtype), bench_card);
}
inline Tensor card_ids(const Shape& shape, std::int64_t first, std::int64_t end) {
    return to(ids(shape, first, end), bench_card);
}

}  // namespace gradus::bench
