// kernel_table [--all] [--json FILE] [--allowed FILE] PTXAS_OUTPUT...: what ptxas says about every kernel, as a table.
//
// Ends with 1 where a kernel keeps something in local memory, a stack frame or spilled registers, unless the reviewed
// list names it: a line of that list is a part of the kernel's name, "stack" (a frame, but no spills) or "spills"
// (both) and the reason, with " | " between them.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <utility>

#include "gradus/tools/ptxas_report.h"

namespace gradus::tools {
namespace {

struct Allowed {
    std::string part;
    bool spills;  ///< or a stack frame alone
    std::string reason;
    bool used = false;

    bool covers(const KernelFigures& k) const {
        return k.name.find(part) != std::string::npos && (spills || (k.spill_stores == 0 && k.spill_loads == 0));
    }
};

std::vector<Allowed> read_allowed(const std::string& path) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    std::vector<Allowed> all;
    for (std::string line; std::getline(in, line);) {
        if (line.empty() || line[0] == '#') continue;
        const std::size_t first = line.find(" | "), second = line.find(" | ", first + 1);
        const std::string what = second == std::string::npos ? "" : line.substr(first + 3, second - first - 3);
        if (what != "stack" && what != "spills")
            throw std::runtime_error(path + ": expected 'NAME | stack or spills | REASON': got '" + line + "'");
        all.push_back({line.substr(0, first), what == "spills", line.substr(second + 3)});
    }
    return all;
}

void print_heading() {
    std::printf("%-52s %6s %5s %9s %6s %7s %7s %8s %6s\n", "kernel", "arch", "count", "registers", "stack", "spills",
                "shared", "barriers", "warps");
}

/// One kernel, or the largest figures of all instances of a template.
void print(const std::string& name, const std::vector<KernelFigures>& kernels) {
    KernelFigures most = kernels.front();
    long warps = 64;
    for (const KernelFigures& k : kernels) {
        most.registers = std::max(most.registers, k.registers), most.stack = std::max(most.stack, k.stack);
        most.spill_stores = std::max(most.spill_stores, k.spill_stores + k.spill_loads);
        most.shared = std::max(most.shared, k.shared), most.barriers = std::max(most.barriers, k.barriers);
        warps = std::min(warps, k.warps_by_registers());
    }
    std::printf("%-52s %6s %5zu %9ld %6ld %7ld %7ld %8ld %6ld\n", name.c_str(), most.architecture.c_str(),
                kernels.size(), most.registers, most.stack, most.spill_stores, most.shared, most.barriers, warps);
}

void write_json(const std::string& path, const std::vector<KernelFigures>& kernels) {
    std::ofstream out(path);
    out << "[";
    const char* comma = "\n";
    for (const KernelFigures& k : kernels) {
        out << comma << "{\"kernel\": \"" << k.name << "\", \"architecture\": \"" << k.architecture
            << "\", \"registers\": " << k.registers << ", \"stack\": " << k.stack
            << ", \"spill_stores\": " << k.spill_stores << ", \"spill_loads\": " << k.spill_loads
            << ", \"shared\": " << k.shared << ", \"barriers\": " << k.barriers
            << ", \"warps_by_registers\": " << k.warps_by_registers() << "}";
        comma = ",\n";
    }
    out << "\n]\n";
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

int run(const std::vector<std::string>& arguments) {
    bool each = false;
    std::string json;
    std::vector<Allowed> allowed;
    std::vector<KernelFigures> kernels;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--all") {
            each = true;
        } else if (arguments[i] == "--json" && i + 1 < arguments.size()) {
            json = arguments[++i];
        } else if (arguments[i] == "--allowed" && i + 1 < arguments.size()) {
            allowed = read_allowed(arguments[++i]);
        } else {
            std::ifstream in(arguments[i]);
            if (!in) throw std::runtime_error("cannot read " + arguments[i]);
            const std::vector<KernelFigures> some = read_ptxas(in);
            kernels.insert(kernels.end(), some.begin(), some.end());
        }
    }
    if (kernels.empty()) throw std::runtime_error("no kernel in what was given: were the .cu files compiled by nvcc?");

    std::map<std::pair<std::string, std::string>, std::vector<KernelFigures>> groups;
    for (const KernelFigures& k : kernels) {
        groups[{each ? k.name : without_arguments(k.name), k.architecture}].push_back(k);
    }
    print_heading();
    for (const auto& [key, group] : groups) print(key.first, group);
    std::printf(
        "\n%zu kernels. Largest figures of a row's count of instances; bytes, but for registers, barriers and warps: "
        "how\n"
        "many of a multiprocessor's 64 the registers allow. Spills are stores and loads together.\n",
        kernels.size());
    if (!json.empty()) write_json(json, kernels);

    int refused = 0;
    std::map<std::string, int> excused;
    for (const KernelFigures& k : kernels) {
        if (!k.leaves_registers()) continue;
        const auto found = std::find_if(allowed.begin(), allowed.end(), [&](const Allowed& a) { return a.covers(k); });
        if (found != allowed.end()) {
            found->used = true;
            ++excused[found->part + ": " + found->reason];
            continue;
        }
        ++refused;
        std::printf("refused: %s (%s): stack frame %ld, spill stores %ld, spill loads %ld bytes\n", k.name.c_str(),
                    k.architecture.c_str(), k.stack, k.spill_stores, k.spill_loads);
    }
    for (const auto& [what, count] : excused) std::printf("allowed: %d of %s\n", count, what.c_str());
    for (const Allowed& a : allowed)
        if (!a.used) std::printf("note: no kernel needs the exception '%s'\n", a.part.c_str());
    std::printf("local memory: %d kernels refused\n", refused);
    return refused == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gradus::tools

int main(int argc, char** argv) try {
    return gradus::tools::run({argv + 1, argv + argc});
} catch (const std::exception& error) {
    std::cerr << "kernel_table: " << error.what() << "\n";
    return 3;
}
