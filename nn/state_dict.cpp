// Saving and loading a module's values by name.
#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/walk.h"

namespace gradus {
namespace {

/// Every tensor that is saved, under each of its names.
NamedTensors entries(const Module& module) {
    NamedTensors named;
    Walk walk;
    walk.parameter = [&](const std::string& path, Parameter& p) { named.emplace_back(path, p); };
    walk.buffer = [&](const std::string& path, Buffer& b) {
        if (b.persistent()) named.emplace_back(path, b);
    };
    walk.start(module);
    return named;
}

std::string list(const char* title, const std::vector<std::string>& names) {
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
    return names.empty() ? std::string() : text("\n  ", title, ": ", joined);
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    if (&a.storage() == &b.storage() && a.layout().offset == b.layout().offset) return true;
    std::vector<std::byte> left(std::size_t(a.numel()) * std::size_t(size_of(a.dtype()))), right(left.size());
    const Tensor a_here = to(a, Device{}), b_here = to(b, Device{});
    copy_to_host(a_here, left.data());
    copy_to_host(b_here, right.data());
    return left == right;
}

}  // namespace

NamedTensors Module::state_dict() const {
    NamedTensors named = entries(*this);
    for (auto& [name, x] : named) x = x.without_past();
    return named;
}

LoadReport Module::load_state_dict(const NamedTensors& state, const LoadOptions& options) {
    const NoGrad scope;
    std::map<std::string, Tensor> given;
    for (const auto& [name, value] : state) {
        const std::string& prefix = options.strip_prefix;
        const std::string plain = !prefix.empty() && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
        check(value.defined(), "load_state_dict: ", name, " is undefined");
        check(given.emplace(plain, value.without_past()).second, "load_state_dict: ", plain, " is given twice",
              prefix.empty() ? std::string() : text(" (after taking off the prefix ", prefix, ")"));
    }

    LoadReport report;
    std::vector<std::string> conflicting;
    NamedTensors own = entries(*this);
    std::unordered_map<const void*, std::pair<std::string, Tensor>> chosen;  // identity -> name and value
    std::unordered_set<std::string> names;
    for (const auto& [name, x] : own) {
        names.insert(name);
        const auto found = given.find(name);
        if (found == given.end()) continue;
        const Tensor& value = found->second;
        if (value.shape() != x.shape() || value.dtype() != x.dtype()) {
            report.misshapen.push_back(
                text(name, " is ", x.shape(), " ", x.dtype(), " here, ", value.shape(), " ", value.dtype(), " there"));
            continue;
        }
        const auto [entry, first] = chosen.try_emplace(x.identity(), name, value);
        if (!first && !same_bytes(entry->second.second, value))
            conflicting.push_back(entry->second.first + " and " + name);
    }
    // A tied tensor is missing only when none of its names is there.
    std::unordered_set<const void*> mentioned;
    for (const auto& [name, x] : own)
        if (given.contains(name)) mentioned.insert(x.identity());
    for (const auto& [name, x] : own)
        if (mentioned.insert(x.identity()).second) report.missing.push_back(name);
    for (const auto& entry : given)
        if (!names.contains(entry.first)) report.unexpected.push_back(entry.first);

    check(conflicting.empty(),
          "load_state_dict: names of one tied tensor bring different values:", list("conflicting", conflicting));
    check(!options.strict || report.clean(), "load_state_dict: the state does not fit ", kind(), ":",
          list("missing", report.missing), list("unexpected", report.unexpected), list("misshapen", report.misshapen),
          "\n  nothing was loaded; strict = false loads what fits");

    std::vector<std::pair<Tensor, Tensor>> writes;
    for (const auto& [name, x] : own)
        if (const auto entry = chosen.find(x.identity()); entry != chosen.end()) {
            writes.emplace_back(x.without_past(), gradus::to(entry->second.second, x.device()));
            chosen.erase(entry);
        }
    for (const auto& [destination, value] : writes) copy_(destination, value);
    return report;
}

}  // namespace gradus
