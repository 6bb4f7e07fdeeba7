// The kernel dialect of core/launch.h as far as text shows it: what a kernel's source must not contain.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "gradus/tests/support.h"

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// The same text with blanks where comments and literals stood.
std::string without_comments(const std::string& text) {
    static const std::regex hidden(R"re(//[^\n]*|/\*[^]*?\*/|"(\\.|[^"\\\n])*")re");
    return std::regex_replace(text, hidden, " ");
}

/// The rules that a line of a kernel's source breaks, by their words. `ptx`: the one file that may hold PTX.
Words broken(const std::string& line, bool ptx) {
    struct Rule {
        const char* words;
        std::regex pattern;
        bool also_in_ptx;
    };
    static const std::vector<Rule> rules = {
        {"inline PTX outside kernels/ptx.cuh", std::regex(R"re(\basm\b|\b__asm__\b)re"), false},
        {"code that depends on __CUDA_ARCH__", std::regex(R"re(\b__CUDA_ARCH__\b)re"), false},
        {"a launch without GRADUS_LAUNCH", std::regex("<<<"), true},
        {"__constant__ memory", std::regex(R"re(\b__constant__\b)re"), true},
        {"shared memory without GRADUS_SHARED", std::regex(R"re(\b__shared__\b)re"), true},
        {"a mask from __activemask", std::regex(R"re(\b__activemask\b)re"), true},
        {"printf", std::regex(R"re(\bprintf\s*\()re"), true},
        {"an atomic sum that is not seen to be of integers: write the addend as 1u, unsigned(…) or int(…)",
         std::regex(R"re(\batomicAdd\s*\((?![^;]*,\s*(\d+u?|unsigned\(.*|int\(.*)\)))re"), true},
        {"two barriers on one line", std::regex(R"re(__syncthreads.*__syncthreads)re"), true},
    };
    Words all;
    for (const Rule& rule : rules)
        if ((!ptx || rule.also_in_ptx) && std::regex_search(line, rule.pattern)) all.push_back(rule.words);
    return all;
}

/// Includes other than of the project and of the C++ library: those end in .h, .hpp, .cuh or name a folder.
Words foreign_includes(const std::string& text) {
    static const std::regex include(R"re((^|\n)[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]*)[">])re");
    Words all;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), include); it != std::sregex_iterator(); ++it) {
        const std::string path = (*it)[3];
        const bool standard = (*it)[2] == "<" && path.find_first_of("./") == std::string::npos;
        if (path.rfind("gradus/", 0) != 0 && !standard) all.push_back(path);
    }
    return all;
}

std::string text_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the dialect's rules tell wrong lines from right ones", "[layering]") {
    CHECK(broken("    v += __shfl_xor_sync(all_lanes, v, o);", false) == Words{});
    CHECK(broken("visit<std::vector<std::vector<int>>>(f);", false) == Words{});
    CHECK(broken("if (atomicAdd(&done, 1u) == last) {", false) == Words{});
    CHECK(broken("atomicAdd(count + bin(x, y), unsigned(n));", false) == Words{});
    CHECK(broken("asm volatile(\" \");", false).size() == 1);
    CHECK(broken("asm volatile(\" \");", true) == Words{});
    CHECK(broken("kernel<<<grid, block>>>(x);", false).size() == 1);
    CHECK(broken("__constant__ float table[4];", false).size() == 1);
    CHECK(broken("__shared__ float tile[16];", false).size() == 1);
    CHECK(broken("atomicAdd(sum, v);", false).size() == 1);
    CHECK(broken("atomicAdd(&sum[i], 1.0f);", false).size() == 1);
    CHECK(broken("__syncthreads(); work(); __syncthreads();", false).size() == 1);
    CHECK(without_comments("a // asm\nb /* asm\n */ c \"asm\" d") == "a  \nb   c   d");
    CHECK(foreign_includes("#include <cstdint>\n#include \"gradus/kernels/device.cuh\"\n") == Words{});
    CHECK(foreign_includes("#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n#include <mma.h>\n").size() == 3);
    CHECK(foreign_includes("#include <cuda/std/atomic>\n") == Words{"cuda/std/atomic"});
}

TEST_CASE("kernels keep to the dialect", "[layering]") {
    std::size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GRADUS_SOURCE_DIR) / "kernels")) {
        const std::string extension = entry.path().extension().string();
        if (extension != ".cu" && extension != ".cuh") continue;
        ++files;
        INFO(entry.path());
        const bool ptx = entry.path().filename() == "ptx.cuh";
        const std::string text = text_of(entry.path());
        CHECK(foreign_includes(text) == Words{});
        const std::string code = without_comments(text);
        for (std::size_t begin = 0; begin < code.size();) {
            const std::size_t end = std::min(code.find('\n', begin), code.size());
            const std::string line = code.substr(begin, end - begin);
            INFO(line);
            CHECK(broken(line, ptx) == Words{});
            begin = end + 1;
        }
    }
    CHECK(files > 0);
}
