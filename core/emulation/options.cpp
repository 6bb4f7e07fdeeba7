#include "gradus/core/emulation/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace gradus::emulation {
namespace {

/// The number of the word that an environment variable holds, 0 where it is unset.
int choice(const char* variable, std::initializer_list<const char*> words) {
    const char* text = std::getenv(variable);
    if (!text || !*text) return 0;
    int i = 0;
    std::string all;
    for (const char* word : words) {
        if (std::strcmp(word, text) == 0) return i;
        all += std::string(i++ ? ", " : "") + word;
    }
    std::fprintf(stderr, "%s: expected one of %s: got \"%s\": the first is taken\n", variable, all.c_str(), text);
    return 0;
}

long number(const char* variable, long standard) {
    const char* text = std::getenv(variable);
    return text && *text ? std::strtol(text, nullptr, 10) : standard;
}

Options from_environment() {
    Options o;
    o.order = Options::Order(choice("GRADUS_EMULATOR_ORDER", {"in_order", "reverse", "random"}));
    o.streams = Options::Streams(choice("GRADUS_EMULATOR_STREAMS", {"lazy", "eager", "random"}));
    o.copies = Options::Copies(choice("GRADUS_EMULATOR_COPIES", {"late", "eager", "random"}));
    o.seed = std::uint64_t(number("GRADUS_EMULATOR_SEED", 1));
#if defined(GRADUS_EMULATION_TSAN)
    const long cores = 1;  // two sets of fibers take turns: that finds what two host threads would
#else
    const long cores = std::clamp<long>(long(std::thread::hardware_concurrency()), 1, 2);
#endif
    o.workers = int(std::clamp<long>(number("GRADUS_EMULATOR_WORKERS", cores), 1, 3));
    if (o.order == Options::Order::random || o.streams == Options::Streams::random ||
        o.copies == Options::Copies::random)
        std::fprintf(stderr, "gradus emulator: random with GRADUS_EMULATOR_SEED=%llu\n",
                     static_cast<unsigned long long>(o.seed));
    return o;
}

const char* base_name(const char* file) {
    const char* slash = std::strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/// Where each site stands is written once; the set is asked at every barrier, so it is kept per host thread.
void write_down(const char* path, const std::string& line) {
    thread_local std::set<std::string> seen;
    if (!seen.insert(line).second) return;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (std::FILE* file = std::fopen(path, "a")) {
        std::fprintf(file, "%s\n", line.c_str());
        std::fclose(file);
    }
}

}  // namespace

Options& options() {
    static Options all = from_environment();
    return all;
}

bool skipped(const char* kind, const char* file, int line) {
    static const char* const skip = std::getenv("GRADUS_EMULATOR_SKIP");
    static const char* const coverage = std::getenv("GRADUS_EMULATOR_COVERAGE");
    if (!skip && !coverage) [[likely]]
        return false;
    const std::string place = std::string(base_name(file)) + ":" + std::to_string(line);
    if (coverage) write_down(coverage, std::string(kind) + " " + place);
    return skip && place == skip;
}

}  // namespace gradus::emulation
