// What training carries from one run to the next: tensors by name and plain values by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/core/random.h"
#include "gradus/core/tensor.h"

namespace gradus {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

using Value = std::variant<std::int64_t, double, std::string>;
using Values = std::map<std::string, Value>;

/// The value of that name and type; throws naming the key when it is absent or of another type. An integer reads as a
/// double too.
std::int64_t integer_at(const Values& values, const std::string& name);
double number_at(const Values& values, const std::string& name);
const std::string& text_at(const Values& values, const std::string& name);

/// A generator's state under `name.seed`, `name.step`, `name.number`.
void put_generator(Values& values, const std::string& name, const Generator& generator);
Generator generator_at(const Values& values, const std::string& name);

struct CopyReport {
    std::vector<std::string> missing;     ///< wanted, but not in the source
    std::vector<std::string> unexpected;  ///< in the source, but not wanted
    bool complete() const { return missing.empty() && unexpected.empty(); }
};
/// Copies the source's elements into the target's tensors of the same names, in place. Shapes and dtypes must agree.
/// Strict: a name that is missing or unexpected is an error; not strict: the report lists them. Every fault is listed
/// in one error, and after an error nothing has changed.
CopyReport copy_state(const NamedTensors& target, const NamedTensors& source, bool strict = true);

/// A name made fit for an error text, when that text is built: control characters escaped, a very long one cut.
struct Quoted {
    const std::string& name;
};
std::string to_string(const Quoted& quoted);

}  // namespace gradus
