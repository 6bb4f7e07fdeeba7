// The rule of who may include whom: core <- kernels <- autograd <- nn <- parallel, read from the #include lines.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "gradus/tests/support.h"

namespace {

const std::vector<std::string> layers = {"core", "kernels", "autograd", "nn", "parallel"};

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> includes(const std::string& text) {
    static const std::regex line(R"re((^|\n)[ \t]*#[ \t]*include[ \t]*["<]([^">\n]*)[">])re");
    std::vector<std::string> found;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), line); it != std::sregex_iterator(); ++it) {
        found.push_back((*it)[2]);
    }
    return found;
}

/// The includes that a file of `layer` must not have: of a layer on its right, of the tests, benchmarks and examples,
/// and those of the project's own files that do not start with "gradus/".
std::vector<std::string> forbidden(const std::string& layer, const std::string& text) {
    const auto own = std::find(layers.begin(), layers.end(), layer);
    std::vector<std::string> wrong;
    for (const std::string& path : includes(text)) {
        const bool spelled_out = path.rfind("gradus/", 0) == 0;
        const std::string inside = spelled_out ? path.substr(7) : path;
        const std::string folder = inside.substr(0, inside.find('/'));
        const auto there = std::find(layers.begin(), layers.end(), folder);
        const bool of_project = spelled_out || there != layers.end() ||
                                std::filesystem::exists(std::filesystem::path(GRADUS_SOURCE_DIR) / layer / path);
        if (of_project && (!spelled_out || there == layers.end() || there > own)) wrong.push_back(path);
    }
    return wrong;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the layering rule tells a wrong arrow from a right one", "[layering]") {
    CHECK(forbidden("kernels", "#pragma once\n#include <vector>\n#include \"gradus/core/tensor.h\"\n").empty());
    CHECK(forbidden("nn", "#include \"gradus/nn/module.h\"\n#include \"gradus/autograd/ops.h\"\n").empty());
    CHECK(forbidden("core", "  #  include \"gradus/kernels/matmul.h\"") == Names{"gradus/kernels/matmul.h"});
    CHECK(forbidden("core", "#include <gradus/autograd/node.h>") == Names{"gradus/autograd/node.h"});
    CHECK(forbidden("autograd", "#include \"gradus/nn/linear.h\"\n#include \"gradus/core/error.h\"\n") ==
          Names{"gradus/nn/linear.h"});
    CHECK(forbidden("nn", "#include \"gradus/tests/support.h\"") == Names{"gradus/tests/support.h"});
    CHECK(forbidden("nn", "#include \"gradus/gradus.h\"") == Names{"gradus/gradus.h"});
    CHECK(forbidden("nn", "#include \"core/tensor.h\"") == Names{"core/tensor.h"});
}

TEST_CASE("no layer includes one to its right", "[layering]") {
    std::size_t files = 0;
    for (const std::string& layer : layers) {
        const auto folder = std::filesystem::path(GRADUS_SOURCE_DIR) / layer;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
            const std::string extension = entry.path().extension().string();
            if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
            ++files;
            INFO(entry.path());
            CHECK(forbidden(layer, text_of(entry.path())) == Names{});
        }
    }
    CHECK(files > 0);
}
