// What ptxas -v says about kernels, as rows: registers, stack, spills, shared memory, barriers.
#pragma once

#include <cxxabi.h>
#include <algorithm>
#include <cstdlib>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::tools {

struct KernelFigures {
    std::string name;          ///< as the source has it, with template arguments and without namespaces
    std::string architecture;  ///< "sm_90"
    long registers = 0, stack = 0, spill_stores = 0, spill_loads = 0, shared = 0,
         barriers = 0;  ///< bytes but for the first and last

    bool leaves_registers() const { return stack > 0 || spill_stores > 0 || spill_loads > 0; }

    /// How many warps of a multiprocessor's 64 the registers allow: 65,536 registers, given to a warp in pieces of 256,
    /// to each of four schedulers a quarter. Shared memory and the size of the block may allow fewer.
    long warps_by_registers() const {
        const long each = (std::max(registers, 1L) * 32 + 255) / 256 * 256;
        return std::min(64L, 65536 / 4 / each * 4);
    }
};

/// "softmax_kernel" of "softmax_kernel<float, 4>".
inline std::string without_arguments(const std::string& name) { return name.substr(0, name.find('<')); }

/// A mangled name as the source has it: without the result, the parameters and the namespaces of this project.
inline std::string short_name(const std::string& mangled) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                      std::free);
    if (status != 0) return mangled;
    std::string name = text.get();
    for (const std::string_view prefix :
         {"(anonymous namespace)::", "gradus::kernels::cuda::", "gradus::kernels::", "gradus::"})
        for (std::size_t at; (at = name.find(prefix)) != std::string::npos;) name.erase(at, prefix.size());
    if (name.rfind("void ", 0) == 0) name.erase(0, 5);
    int depth = 0;  // of template arguments: the parameters open outside of them
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (name[i] == '<') ++depth;
        if (name[i] == '>') --depth;
        if (name[i] == '(' && depth == 0) return name.substr(0, i);
    }
    return name;
}

/// The number right before `words`, or 0.
inline long number_before(const std::string& line, std::string_view words) {
    const std::size_t end = line.find(words);
    if (end == std::string::npos || end == 0) return 0;
    std::size_t begin = end;
    while (begin > 0 && (line[begin - 1] == ' ' || (line[begin - 1] >= '0' && line[begin - 1] <= '9'))) --begin;
    return std::strtol(line.c_str() + begin, nullptr, 10);
}

/// Reads all that nvcc printed for one file.
inline std::vector<KernelFigures> read_ptxas(std::istream& in) {
    std::vector<KernelFigures> all;
    bool inside = false;  // the figures of functions that are no kernels are left out
    for (std::string line; std::getline(in, line);) {
        if (const std::size_t at = line.find("Compiling entry function '"); at != std::string::npos) {
            const std::size_t begin = line.find('\'', at) + 1, end = line.find('\'', begin);
            const std::size_t other = line.find("for '", end) + 5;
            KernelFigures kernel;
            kernel.name = short_name(line.substr(begin, end - begin));
            kernel.architecture = line.substr(other, line.find('\'', other) - other);
            all.push_back(kernel);
            inside = true;
        } else if (inside && line.find(" bytes stack frame") != std::string::npos) {
            all.back().stack = number_before(line, " bytes stack frame");
            all.back().spill_stores = number_before(line, " bytes spill stores");
            all.back().spill_loads = number_before(line, " bytes spill loads");
        } else if (inside && line.find("Used ") != std::string::npos) {
            all.back().registers = number_before(line, " registers");
            all.back().barriers = number_before(line, " barriers");
            all.back().shared = number_before(line, " bytes smem");
            inside = false;
        }
    }
    return all;
}

}  // namespace gradus::tools
