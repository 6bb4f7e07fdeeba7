// The ONNX project's own test data, which none of us wrote, against the ops of Gradus.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/ops.h"
#include "gradus/tests/onnx_cases.h"
#include "gradus/tests/onnx_compare.h"
#include "gradus/tests/onnx_reader.h"
#include "gradus/tests/onnx_skips.h"
#include "gradus/tests/support.h"

namespace gradus::onnx {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> sets = {"node", "simple", "pytorch-converted", "pytorch-operator"};

struct Tally {
    int run = 0;
    int passed = 0;
    int skipped = 0;
    std::map<const Skip*, int> by_rule;
    std::set<std::string> used;         // ops computed and names of rules that took effect
    std::vector<std::string> failures;  // a line each
    std::vector<std::string> unknown;   // cases with an op that nobody listed
};

std::string data_folder() {
    const char* given = std::getenv("GRADUS_ONNX_DATA");
    return given && *given ? given : "/usr/share/libonnx-testdata/data";
}

std::vector<fs::path> folders(const fs::path& set) {
    std::vector<fs::path> found;
    if (!fs::is_directory(set)) return found;
    for (const fs::directory_entry& entry : fs::directory_iterator(set)) {
        if (fs::exists(entry.path() / "model.onnx")) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
}

// What a rule may object to in a case.
std::vector<std::string> traits(const fs::path& folder, const Model& model, By by) {
    if (by == By::folder) return {folder.filename().string()};
    std::vector<std::string> found;
    std::vector<Value> values = model.inputs;
    values.insert(values.end(), model.outputs.begin(), model.outputs.end());
    if (by == By::op) {
        for (const Node& node : model.nodes) found.push_back(node.op);
    } else if (by == By::kind) {
        for (const Value& value : values) {
            if (!value.is_tensor) found.push_back("not a tensor");
        }
    } else {
        for (const Value& value : values) found.push_back(type_name(value.type));
        for (const Array& array : model.constants) found.push_back(type_name(array.type));
    }
    return found;
}

// The first rule that leaves the case out, or null. Every name that takes effect is noted.
const Skip* rule_for(const fs::path& folder, const Model& model, Tally& tally) {
    const Skip* first = nullptr;
    for (const By by : {By::folder, By::op, By::kind, By::type}) {
        const std::vector<std::string> found = traits(folder, model, by);
        for (const Skip& rule : skips()) {
            if (rule.by != by) continue;
            for (const std::string_view name : rule.names) {
                if (std::find(found.begin(), found.end(), name) == found.end()) continue;
                tally.used.insert(std::string(name));
                if (!first) first = &rule;
            }
        }
        if (first) return first;
    }
    return nullptr;
}

std::string file(const fs::path& folder, const char* kind, std::size_t at) {
    return (folder / "test_data_set_0" / (kind + ("_" + std::to_string(at)) + ".pb")).string();
}

// Dropout with p > 0 in training: the probability, or 0.
double drawn_dropout(const Model& model, const Tensors& inputs) {
    if (model.nodes.size() != 1 || model.nodes[0].op != "Dropout" || inputs.size() < 3) return 0;
    return inputs[2].item<bool>() ? inputs[1].item() : 0;
}

// The same elements with the first axis as the fastest: ops must not care how a tensor lies in memory.
Tensor column_major(const Tensor& x) {
    Axes backwards;
    for (int axis = x.rank() - 1; axis >= 0; --axis) backwards.push_back(axis);
    return permute(clone(permute(x, backwards)), backwards);
}

std::string compare(const fs::path& folder, const Model& model, Tensor (*laid_out)(const Tensor&)) {
    Tensors inputs;
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        const Array array = read_array(file(folder, "input", i));
        inputs.push_back(laid_out(to_tensor(array, model.inputs[i].type)));
    }
    const Tensors outputs = evaluate(model, inputs);
    if (const double p = drawn_dropout(model, inputs); p > 0) {
        return dropout_difference(to_array(outputs[0]), to_array(inputs[0]), p);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Array stored = read_array(file(folder, "output", i));
        const Array expected = to_array(to_tensor(stored, model.outputs[i].type));
        const std::string wrong = difference(to_array(outputs[i]), expected);
        if (!wrong.empty()) return text("output ", i, ": ", wrong);
    }
    return "";
}

void run_case(const fs::path& folder, Tally& tally) {
    const std::string name = folder.parent_path().filename().string() + "/" + folder.filename().string();
    const Model model = read_model((folder / "model.onnx").string());
    if (const Skip* rule = rule_for(folder, model, tally)) {
        ++tally.skipped;
        ++tally.by_rule[rule];
        return;
    }
    for (const Node& node : model.nodes) {
        if (has_case(node.op)) continue;
        ++tally.skipped;
        tally.unknown.push_back(name + ": " + node.op);
        return;
    }
    ++tally.run;
    for (const Node& node : model.nodes) tally.used.insert(node.op);
    std::string wrong;
    try {
        wrong = compare(folder, model, contiguous);
        if (wrong.empty()) {
            wrong = compare(folder, model, column_major);
            if (!wrong.empty()) wrong = "with column-major inputs: " + wrong;
        }
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    if (wrong.empty())
        ++tally.passed;
    else
        tally.failures.push_back(name + " (" + model.nodes.back().op + "): " + wrong);
}

void print(const Tally& tally) {
    std::cout << "ONNX: run " << tally.run << ", passed " << tally.passed << ", skipped " << tally.skipped << "\n";
    for (const Skip& rule : skips()) {
        const auto found = tally.by_rule.find(&rule);
        if (found == tally.by_rule.end()) continue;
        std::cout << "  skipped " << found->second << ", " << rule.category << ": " << rule.reason << "\n";
    }
    if (!tally.unknown.empty()) {
        std::cout << "  skipped " << tally.unknown.size() << ", ops that the reviewed release does not have\n";
    }
    for (const std::string& line : tally.failures) std::cout << "  FAILED " << line << "\n";
    for (const std::string& line : tally.unknown) std::cout << "  not reviewed: " << line << "\n";
    std::cout << std::flush;
}

// Names in the list or the table that no case of the reviewed release needs.
std::vector<std::string> stale(const Tally& tally) {
    std::vector<std::string> names;
    for (const Skip& rule : skips()) names.insert(names.end(), rule.names.begin(), rule.names.end());
    for (const auto& [op, compute] : cases()) names.push_back(op);
    std::vector<std::string> unused;
    for (const std::string& name : names) {
        if (!tally.used.count(name)) unused.push_back(name);
    }
    return unused;
}

}  // namespace

TEST_CASE("ONNX: every op that Gradus has gives the published outputs", "[onnx]") {
    const fs::path data = data_folder();
    if (!fs::is_directory(data / "node")) {
        std::cout << "ONNX: not run, since " << data.string()
                  << " is missing: install Debian's libonnx-testdata, or let "
                  << "GRADUS_ONNX_DATA name the folder that holds node/\n";
        return;
    }
    Tally tally;
    std::map<std::string, int> sizes;
    for (const char* set : sets) {
        const std::vector<fs::path> found = folders(data / set);
        sizes[set] = int(found.size());
        for (const fs::path& folder : found) run_case(folder, tally);
    }
    print(tally);
    CHECK(tally.failures == std::vector<std::string>{});
    CHECK(tally.passed == tally.run);
    if (sizes["node"] == reviewed_cases) {
        CHECK(tally.unknown == std::vector<std::string>{});
        CHECK(stale(tally) == std::vector<std::string>{});
        CHECK(tally.run >= reviewed_runs);
    } else {
        std::cout << "  this is another release than the reviewed one: node/ has " << sizes["node"] << " cases, not "
                  << reviewed_cases << "\n";
    }
}

TEST_CASE("ONNX: the skip list gives reasons and names nothing that is computed", "[onnx]") {
    std::set<std::string_view> seen;
    for (const Skip& rule : skips()) {
        CHECK(!rule.category.empty());
        CHECK(rule.reason.size() > 10);
        CHECK(!rule.names.empty());
        for (const std::string_view name : rule.names) {
            INFO(name);
            CHECK(seen.insert(name).second);
            CHECK((rule.by != By::op || !has_case(std::string(name))));
        }
    }
}

}  // namespace gradus::onnx
