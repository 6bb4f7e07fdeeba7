// The list of cases against the tests: whatever it says is tested carries its number there, and no test has a number it
// lacks.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

std::string contents(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

/// File name -> the numbers its test cases carry.
std::map<std::string, std::set<std::string>> numbered_tests() {
    std::map<std::string, std::set<std::string>> found;
    const std::regex name(R"(TEST_CASE\(\s*"([^"]*))"), number(R"(BB-\d\d\d)");
    for (const auto& entry : std::filesystem::directory_iterator(GRADUS_SOURCE_DIR "/tests")) {
        if (entry.path().extension() != ".cpp") continue;
        const std::string text = contents(entry.path());
        for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) {
            const std::string title = (*i)[1];
            for (std::sregex_iterator n(title.begin(), title.end(), number); n != end; ++n)
                found[entry.path().filename().string()].insert(n->str());
        }
    }
    return found;
}

TEST_CASE("the list of cases and the tests agree", "[cases]") {
    const std::string list = contents(GRADUS_SOURCE_DIR "/tests/cases.md");
    const auto tests = numbered_tests();
    std::set<std::string> listed;
    const std::regex line(R"(\| (BB-\d\d\d) \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|)"), file("`([^`]*)`");
    for (std::sregex_iterator i(list.begin(), list.end(), line), end; i != end; ++i) {
        const std::string number = (*i)[1], where = (*i)[4];
        INFO(number << ":" << where);
        CHECK(listed.insert(number).second);
        bool named = contains(where, "waits for");
        for (std::sregex_iterator f(where.begin(), where.end(), file); f != end; ++f) {
            named = true;
            const auto found = tests.find((*f)[1]);
            CHECK((found != tests.end() && found->second.count(number) == 1));
        }
        CHECK(named);
    }
    CHECK(listed.size() == 120);
    for (const auto& [name, numbers] : tests)
        for (const std::string& number : numbers) {
            INFO(name << " tests " << number);
            CHECK(listed.count(number) == 1);
        }
}

}  // namespace
}  // namespace gradus::tests
