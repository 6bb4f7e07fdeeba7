// Runs the op table: values against the reference loops, gradients against differences, in every dtype and layout.
#include <fstream>
#include <regex>
#include <set>

#include "gradus/autograd/gradcheck.h"
#include "gradus/tests/situation.h"

namespace gradus::tests {
namespace {

void check_gradient(const Situation& s, bool second_order) {
    const Tensors bases = s.bases();
    // Where the value is no number (a mean of nothing, a variance of one element) it has no differences.
    for (const double v : s.row.call(s.operands(bases)).to_vector<double>())
        if (!std::isfinite(v)) return;
    const CheckedFunction f = [&](const Tensors& given) {
        Tensors all;
        std::size_t next = 0;
        for (std::size_t i = 0; i < bases.size(); ++i)
            all.push_back(s.differentiable(i, bases[i]) ? given[next++] : bases[i]);
        return s.row.call(s.operands(all));
    };
    Tensors checked;
    for (std::size_t i = 0; i < bases.size(); ++i)
        if (s.differentiable(i, bases[i])) checked.push_back(bases[i]);
    GradcheckOptions options;
    options.directions = s.numel() <= 64 ? 0 : 2;
    options.tolerance = s.numel() <= 64 ? 1e-6 : 1e-5;
    std::string error;
    try {
        if (second_order)
            gradgradcheck(f, checked, options);
        else
            gradcheck(f, checked, options);
    } catch (const Error& thrown) {
        error = thrown.what();
    }
    CHECK(error == "");
}

TEST_CASE("every op has a row in the op table", "[ops]") {
    std::ifstream file(GRADUS_SOURCE_DIR "/autograd/ops.h");
    REQUIRE(file);
    std::set<std::string> missing;
    const std::regex declaration(R"(^(?:inline )?(?:std::vector<Tensor>|Tensor|TopK|LossSum) (\w+)\(.*)");
    std::size_t found = 0;
    for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (!std::regex_match(line, match, declaration) || match[1] == "operator") continue;
        missing.insert(match[1]);
        ++found;
    }
    CHECK(found > 100);
    for (const OpRow& row : op_table()) missing.erase(row.name.substr(0, row.name.find(' ')));
    // Creation has no operands: ops_test and random_test look at it.
    for (const char* name :
         {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "arange", "eye", "uniform", "normal"})
        missing.erase(name);
    std::string names;
    for (const std::string& name : missing) names += name + " ";
    CHECK(names == "");
}

TEST_CASE("op table: values of floats", "[ops]") {
    for_situations({DType::f32, DType::f64, DType::bf16, DType::f16}, [](const Situation& s) {
        INFO(s.words());
        check_value(s);
    });
}

TEST_CASE("op table: values of integers", "[ops]") {
    for_situations({DType::i64, DType::i32}, [](const Situation& s) {
        INFO(s.words());
        check_value(s);
    });
}

TEST_CASE("op table: gradients by central differences", "[ops]") {
    for_situations({DType::f64}, [](const Situation& s) {
        if (!s.row.gradient) return;
        INFO(s.words());
        check_gradient(s, false);
    });
}

TEST_CASE("op table: second derivatives by differences of gradients, or a clear refusal", "[ops]") {
    for_situations({DType::f64}, [](const Situation& s) {
        if (!s.row.gradient || s.numel() > 64 || s.lay == Lay::expanded || s.lay == Lay::stepped) return;
        INFO(s.words());
        if (s.row.second_order) return check_gradient(s, true);
        const Tensors bases = s.bases();
        Tensors leaves;
        for (std::size_t i = 0; i < bases.size(); ++i)
            if (s.differentiable(i, bases[i])) leaves.push_back(require_grad(bases[i]));
        const Tensor y = sum(s.row.call(s.operands(bases)));
        const std::string op = s.row.name.substr(0, s.row.name.find(' '));
        CHECK(contains(error_of([&] { gradients(y, leaves, {.create_graph = true}); }),
                       ": the gradient of this fused op cannot be differentiated again: use the composed ops, or "
                       "create_graph = false"));
    });
}

TEST_CASE("op table: gradients in every float against f64", "[ops]") {
    for_situations({DType::f32, DType::bf16, DType::f16}, [](const Situation& s) {
        // Over an expanded axis a half type's rounding errors add up to no fixed bound.
        if (!s.row.gradient || (size_of(s.dtype) == 2 && s.lay == Lay::expanded)) return;
        INFO(s.words());
        const Tensors bases = s.bases();
        Tensors wide;
        for (std::size_t i = 0; i < bases.size(); ++i)
            wide.push_back(is_floating(bases[i].dtype())
                               ? tensor_of(bases[i].to_vector<double>(), bases[i].shape(), DType::f64)
                               : bases[i]);
        const Tensors got = gradients_of(s, bases), wanted = gradients_of(s, wide);
        for (std::size_t i = 0; i < got.size(); ++i) {
            CHECK(got[i].defined() == wanted[i].defined());
            if (!got[i].defined() || !wanted[i].defined()) continue;
            CHECK(got[i].dtype() == s.dtype);
            CHECK(differs(got[i], wanted[i].to_vector<double>(),
                          gradient_tolerance(s.dtype, s.row.length * s.repeats())) == "");
        }
    });
}

}  // namespace
}  // namespace gradus::tests
