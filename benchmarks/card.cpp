#include "card.h"

#include <algorithm>

namespace gradus::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(int calls, const std::function<void()>& call) {
    const Stream stream = Stream::current(bench_card);
    stream.synchronize();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    stream.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

bool have_real_card() {
#if defined(GRADUS_HAS_CUDA) && !defined(GRADUS_EMULATED)
    return device_count(Device::cuda) > 0;
#else
    return false;
#endif
}

double copy_bandwidth() {
    constexpr std::int64_t n = std::int64_t(64) << 20;
    static const Tensor x = ones({n}, DType::f32, bench_card), y = zeros({n}, DType::f32, bench_card);
    const auto copy = [] { copy_(y, x); };
    seconds_of(2, copy);
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(seconds_of(4, copy));
    return 2 * bytes_of(x) / median_of(times);
}

void measure_on_card(benchmark::State& state, const Work& work, const std::function<void()>& call) {
    seconds_of(3, call);
    const int repeats = int(std::clamp(1e-3 / seconds_of(1, call), 1.0, 1000.0));
    const double before = work.bytes > 0 ? copy_bandwidth() : 0;
    std::vector<double> times;
    for ([[maybe_unused]] auto iteration : state) {
        times.push_back(seconds_of(repeats, call));
        state.SetIterationTime(times.back() * repeats);
    }
    const double after = work.bytes > 0 ? copy_bandwidth() : 0, median = median_of(times);
    state.counters["threads"] = 1;
    state.counters["seconds"] = median;
    state.counters["flops"] = work.flops;
    state.counters["bytes"] = work.bytes;
    if (work.bytes > 0) state.counters["share_of_copy"] = work.bytes / median / ((before + after) / 2);
}

void add_on_card(const std::string& name, std::function<void(benchmark::State&)> body) {
    if (have_real_card()) add(name, std::move(body));
}

}  // namespace gradus::bench
