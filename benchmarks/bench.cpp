#include "bench.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "gradus/kernels/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradus::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

#if defined(__AVX512F__)
using Register = __m512;
Register broadcast(float x) { return _mm512_set1_ps(x); }
Register multiply_add(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__FMA__)
using Register = __m256;
Register broadcast(float x) { return _mm256_set1_ps(x); }
Register multiply_add(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
#else
typedef float Register __attribute__((vector_size(16)));
Register broadcast(float x) { return Register{x, x, x, x}; }
Register multiply_add(Register a, Register b, Register c) { return a * b + c; }
#endif

constexpr int chains = 12;  // enough to hide the latency, few enough for 16 registers

/// Seconds of `rounds` rounds of multiply-adds on independent chains.
double run_chains(int rounds) {
    Register sum[chains];
    for (int i = 0; i < chains; ++i) sum[i] = broadcast(float(i));
    const Register factor = broadcast(0.999f), term = broadcast(0.001f);
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < chains; ++i) sum[i] = multiply_add(sum[i], factor, term);
    const double seconds = seconds_since(start);
    for (Register& s : sum) benchmark::DoNotOptimize(s);
    return seconds;
}

double median_of(std::vector<double>& values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

double peak_flops(int threads) {
    constexpr int rounds = 100000;
    std::vector<double> best(std::size_t(threads), 1e9);
    // As many tasks as threads, and each takes the same time: every thread gets one.
    for (int repeat = 0; repeat < 5; ++repeat)
        parallel_tasks(threads, [&](std::int64_t i) {
            best[std::size_t(i)] = std::min(best[std::size_t(i)], run_chains(rounds));
        });
    double flops = 0;
    for (const double seconds : best) flops += 2.0 * chains * rounds * (sizeof(Register) / sizeof(float)) / seconds;
    return flops;
}

double triad_bandwidth(int threads) {
    constexpr std::size_t n = std::size_t(16) << 20, slice = std::size_t(1) << 18;
    static std::vector<float> a(n, 1.0f), b(n, 2.0f), c(n, 3.0f);
    std::vector<double> rate(static_cast<std::size_t>(threads));
    // Timed slice by slice, about 0.2 ms each, so that an interruption spoils one slice and not the median.
    parallel_tasks(threads, [&](std::int64_t i) {
        std::vector<double> times;
        const std::size_t begin = n * std::size_t(i) / std::size_t(threads),
                          end = n * std::size_t(i + 1) / std::size_t(threads);
        for (int repeat = 0; repeat < 2; ++repeat)
            for (std::size_t from = begin; from + slice <= end; from += slice) {
                const Clock::time_point start = Clock::now();
                for (std::size_t j = from; j < from + slice; ++j) a[j] = b[j] + 0.5f * c[j];
                benchmark::ClobberMemory();
                times.push_back(seconds_since(start));
            }
        rate[std::size_t(i)] = 3.0 * slice * sizeof(float) / median_of(times);
    });
    return std::accumulate(rate.begin(), rate.end(), 0.0);
}

void measure(benchmark::State& state, const Work& work, const std::function<void()>& call) {
    const int threads = thread_count();
    call();
    // A short call is timed several times in a row: reading the clock takes some 25 ns.
    const Clock::time_point start = Clock::now();
    call();
    const int repeats = int(std::clamp(20e-6 / seconds_since(start), 1.0, 1000.0));
    const auto limits = [&] {
        return std::array<double, 2>{work.flops > 0 ? peak_flops(threads) / (work.f64 ? 2 : 1) : 0,
                                     work.bytes > 0 ? triad_bandwidth(threads) : 0};
    };
    const auto before = limits();
    std::vector<double> times;
    for ([[maybe_unused]] auto iteration : state) {
        const Clock::time_point from = Clock::now();
        for (int i = 0; i < repeats; ++i) call();
        times.push_back(seconds_since(from) / repeats);
        state.SetIterationTime(times.back() * repeats);
    }
    const auto after = limits();
    const double median = median_of(times);
    state.counters["threads"] = threads;
    state.counters["seconds"] = median;
    state.counters["flops"] = work.flops;
    state.counters["bytes"] = work.bytes;
    if (work.flops > 0) state.counters["share_of_peak"] = work.flops / median / ((before[0] + after[0]) / 2);
    if (work.bytes > 0) state.counters["share_of_triad"] = work.bytes / median / ((before[1] + after[1]) / 2);
}

void add(const std::string& name, std::function<void(benchmark::State&)> body) {
    benchmark::RegisterBenchmark(name.c_str(), std::move(body))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.15);
}

Tensor numbers(const Shape& shape, DType dtype) {
    Generator generator(1);
    return cast(uniform(shape, -1, 1, DType::f32, Device{}, &generator), dtype);
}

Tensor ids(const Shape& shape, std::int64_t first, std::int64_t end) {
    Generator generator(2);
    return cast(uniform(shape, double(first), double(end), DType::f32, Device{}, &generator), DType::i64);
}

std::function<void()> forward_backward(std::vector<Tensor> xs, std::function<Tensor()> f) {
    for (const Tensor& x : xs) require_grad(x);
    return [xs = std::move(xs), f = std::move(f)] {
        const Tensor y = f();
        backward(y, y.rank() == 0 ? Tensor() : y.without_past());
        for (const Tensor& x : xs) zero_grad(x);
    };
}

}  // namespace gradus::bench
