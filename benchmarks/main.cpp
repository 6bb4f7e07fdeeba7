// gradus_bench: every benchmark of this folder; --benchmark_filter=REGEX picks some.
#include <cstdio>
#include <exception>
#include <string_view>

#include "bench.h"

namespace gradus::bench {
namespace {

std::string amount(double value, const char* unit) {
    const char* prefix = "";
    for (const char* next : {"k", "M", "G"}) {
        if (value < 1000) break;
        value /= 1000, prefix = next;
    }
    char text[64];
    std::snprintf(text, sizeof text, "%.3g %s%s", value, prefix, unit);
    return text;
}

std::string duration(double seconds) {
    char text[64];
    if (seconds < 1e-6)
        std::snprintf(text, sizeof text, "%.0f ns", seconds * 1e9);
    else if (seconds < 1e-3)
        std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
    else
        std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
    return text;
}

/// A line a row: name, threads, median time, work, rate, share of the measured limit.
class Table final : public benchmark::ConsoleReporter {
  public:
    Table() : ConsoleReporter(OO_None) {}

  protected:
    void PrintHeader(const Run&) override {
        std::printf("%-52s %7s %11s %12s %14s %10s %12s %10s\n", "benchmark", "threads", "time", "work", "rate",
                    "of peak", "bandwidth", "of triad");
    }
    void PrintRunData(const Run& run) override {
        const auto& counters = run.counters;
        if (counters.find("seconds") == counters.end()) return ConsoleReporter::PrintRunData(run);
        const auto value = [&](const char* name) {
            const auto at = counters.find(name);
            return at == counters.end() ? 0.0 : at->second.value;
        };
        const double seconds = value("seconds"), flops = value("flops"), bytes = value("bytes");
        std::printf("%-52s %7.0f %11s", run.run_name.function_name.c_str(), value("threads"),
                    duration(seconds).c_str());
        if (flops > 0)
            std::printf(" %12s %14s %8.1f %%", amount(flops, "FLOP").c_str(), amount(flops / seconds, "FLOP/s").c_str(),
                        100 * value("share_of_peak"));
        else if (bytes > 0)
            std::printf(" %12s %14s %10s %12s %8.1f %%", amount(bytes, "B").c_str(), "", "",
                        amount(bytes / seconds, "B/s").c_str(), 100 * value("share_of_triad"));
        std::printf("\n");
        for (const auto& [name, counter] : counters)
            for (const std::string_view known :
                 {"threads", "seconds", "flops", "bytes", "share_of_peak", "share_of_triad"}) {
                if (name == known) break;
                if (known == "share_of_triad") std::printf("    %s %.6g\n", name.c_str(), counter.value);
            }
        std::fflush(stdout);
    }
};

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) try {
    using namespace gradus;
    bool own_table = true;
    for (int i = 1; i < argc; ++i)
        if (std::string_view(argv[i]).find("--benchmark_format") == 0) own_table = false;
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    const int threads = thread_count();
    char text[160];
    std::snprintf(text, sizeof text, "%.1f GFLOP/s on one thread, %.1f on %d", bench::peak_flops(1) * 1e-9,
                  bench::peak_flops(threads) * 1e-9, threads);
    benchmark::AddCustomContext("measured peak (f32 multiply-add)", text);
    std::snprintf(text, sizeof text, "%.1f GB/s on one thread, %.1f on %d", bench::triad_bandwidth(1) * 1e-9,
                  bench::triad_bandwidth(threads) * 1e-9, threads);
    benchmark::AddCustomContext("measured triad (a = b + s c)", text);
    bench::Table table;
    benchmark::RunSpecifiedBenchmarks(own_table ? &table : nullptr);
    benchmark::Shutdown();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_bench: %s\n", error.what());
    return 1;
}
