#include "gradus/nn/state.h"

#include <charconv>
#include <unordered_map>

#include "gradus/autograd/ops.h"

namespace gradus {
namespace {

const Value& value_at(const Values& values, const std::string& name) {
    const auto found = values.find(name);
    check(found != values.end(), "state: the value ", Quoted{name}, " is missing");
    return found->second;
}

template <class T>
const T& typed(const Value& value, const std::string& name, const char* wanted) {
    const T* held = std::get_if<T>(&value);
    static constexpr const char* types[] = {"an integer", "a number", "a text"};
    check(held != nullptr, "state: the value ", Quoted{name}, " is ", types[value.index()], ", expected ", wanted);
    return *held;
}

std::uint32_t word_at(const Values& values, const std::string& name) {
    const std::int64_t value = integer_at(values, name);
    check(value >= 0 && value <= 0xffffffff, "state: the value ", Quoted{name}, " is ", value,
          ", expected 0 to 2^32 - 1");
    return std::uint32_t(value);
}

void list(std::string& faults, const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    faults += text("\n  ", what, " (", names.size(), "):");
    for (const std::string& name : names) faults += " " + to_string(Quoted{name});
}

}  // namespace

std::int64_t integer_at(const Values& values, const std::string& name) {
    return typed<std::int64_t>(value_at(values, name), name, "an integer");
}

double number_at(const Values& values, const std::string& name) {
    const Value& value = value_at(values, name);
    if (const std::int64_t* whole = std::get_if<std::int64_t>(&value)) return double(*whole);
    return typed<double>(value, name, "a number");
}

const std::string& text_at(const Values& values, const std::string& name) {
    return typed<std::string>(value_at(values, name), name, "a text");
}

void put_generator(Values& values, const std::string& name, const Generator& generator) {
    values[name + ".seed"] = std::to_string(generator.seed());  // as a text: a seed may exceed 63 bits
    values[name + ".step"] = std::int64_t(generator.step());
    values[name + ".number"] = std::int64_t(generator.number());
}

Generator generator_at(const Values& values, const std::string& name) {
    const std::string& digits = text_at(values, name + ".seed");
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    check(error == std::errc() && end == digits.data() + digits.size(), "state: the value ", Quoted{name + ".seed"},
          " is not a seed: ", Quoted{digits});
    return Generator::restore(seed, word_at(values, name + ".step"), word_at(values, name + ".number"));
}

std::string to_string(const Quoted& quoted) {
    constexpr std::size_t longest = 80;
    std::string shown = "'";
    for (const char c : quoted.name.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        constexpr char hex[] = "0123456789abcdef";
        if (byte < 0x20 || byte == 0x7f)
            shown += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
        else
            shown += c;
    }
    return shown + (quoted.name.size() > longest ? "…'" : "'");
}

CopyReport copy_state(const NamedTensors& target, const NamedTensors& source, bool strict) {
    std::unordered_map<std::string, Tensor> given;
    for (const auto& [name, tensor] : source)
        check(given.emplace(name, tensor).second, "copy_state: the source names ", Quoted{name}, " twice");
    CopyReport report;
    std::vector<std::pair<Tensor, Tensor>> copies;
    std::vector<std::string> unlike;
    std::unordered_map<std::string, bool> wanted;
    for (const auto& [name, tensor] : target) {
        check(wanted.emplace(name, true).second, "copy_state: the target names ", Quoted{name}, " twice");
        const auto found = given.find(name);
        if (found == given.end()) {
            report.missing.push_back(name);
        } else if (found->second.shape() != tensor.shape() || found->second.dtype() != tensor.dtype()) {
            unlike.push_back(text("\n  unlike: ", Quoted{name}, ": expected ", tensor.shape(), " ", tensor.dtype(),
                                  ", got ", found->second.shape(), " ", found->second.dtype()));
        } else {
            copies.emplace_back(tensor, found->second);
        }
    }
    for (const auto& [name, tensor] : source)
        if (!wanted.contains(name)) report.unexpected.push_back(name);
    if (!unlike.empty() || (strict && !report.complete())) {
        std::string faults;
        if (strict) {
            list(faults, "missing", report.missing);
            list(faults, "unexpected", report.unexpected);
        }
        for (const std::string& line : unlike) faults += line;
        fail("copy_state: the state does not fit, nothing was changed:", faults);
    }
    for (const auto& [to, from] : copies) copy_(to, from);
    return report;
}

}  // namespace gradus
