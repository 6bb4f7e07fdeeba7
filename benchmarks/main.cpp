// gradus_bench: every benchmark of this folder; --benchmark_filter=REGEX picks some.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// A line a row: name, threads, median time, work, rate, share of the measured limit; a row's other counters below it.
/// The limit of memory is the triad, and on a card the copy.
class Table final : public benchmark::ConsoleReporter {
  public:
    Table(std::string peak, std::string triad)
        : ConsoleReporter(OO_None), peak_(std::move(peak)), triad_(std::move(triad)) {}

    bool ReportContext(const Context& context) override {
        name_field_width_ = context.name_field_width;
        std::printf("measured peak (f32 multiply-add): %s\n", peak_.c_str());
        std::printf("measured triad (a = b + s c):     %s\n\n", triad_.c_str());
        std::printf("%-52s %7s %11s %11s %14s %9s %12s %9s\n", "benchmark", "threads", "time", "work", "rate",
                    "of peak", "bandwidth", "of memory");
        return true;
    }
    void ReportRuns(const std::vector<Run>& runs) override {
        for (const Run& run : runs) PrintRunData(run);
    }

  protected:
    void PrintRunData(const Run& run) override {
        std::map<std::string, double> counters;
        for (const auto& [name, counter] : run.counters) counters[name] = counter.value;
        if (counters.count("seconds") == 0) return ConsoleReporter::PrintRunData(run);
        const auto take = [&](const char* name) {
            const double value = counters[name];
            counters.erase(name);
            return value;
        };
        const double seconds = take("seconds"), flops = take("flops"), bytes = take("bytes"), threads = take("threads"),
                     of_peak = take("share_of_peak"),
                     of_memory = std::max(take("share_of_triad"), take("share_of_copy"));
        std::printf("%-52s %7.0f %11s", run.run_name.function_name.c_str(), threads, duration(seconds).c_str());
        if (flops > 0)
            std::printf(" %11s %14s", amount(flops, "FLOP").c_str(), amount(flops / seconds, "FLOP/s").c_str());
        if (of_peak > 0) std::printf(" %7.1f %%", 100 * of_peak);
        if (bytes > 0)
            std::printf(" %11s %14s %9s %12s %7.1f %%", amount(bytes, "B").c_str(), "", "",
                        amount(bytes / seconds, "B/s").c_str(), 100 * of_memory);
        std::printf("\n");
        for (const auto& [name, value] : counters) std::printf("    %s %.6g\n", name.c_str(), value);
        std::fflush(stdout);
    }

  private:
    std::string peak_, triad_;
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
    const auto pair = [&](double one, double all, const char* unit) {
        return bench::amount(one, unit) + " on one thread, " + bench::amount(all, unit) + " on " +
               std::to_string(threads);
    };
    const std::string peak = pair(bench::peak_flops(1), bench::peak_flops(threads), "FLOP/s"),
                      triad = pair(bench::triad_bandwidth(1), bench::triad_bandwidth(threads), "B/s");
    benchmark::AddCustomContext("measured peak (f32 multiply-add)", peak);
    benchmark::AddCustomContext("measured triad (a = b + s c)", triad);
    bench::Table table(peak, triad);
    benchmark::RunSpecifiedBenchmarks(own_table ? &table : nullptr);
    benchmark::Shutdown();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_bench: %s\n", error.what());
    return 1;
}
