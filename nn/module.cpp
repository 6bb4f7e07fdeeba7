#include "gradus/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/walk.h"

namespace gradus {

Parameter::Parameter(const Tensor& value) : Tensor(value.without_past()) { require_grad(*this); }

Buffer::Buffer(const Tensor& value, bool persistent) : Tensor(value.without_past()), persistent_(persistent) {}

std::string Module::kind() const {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(
        abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
    std::string name = status == 0 ? text.get() : typeid(*this).name();
    const std::size_t arguments = std::min(name.find('<'), name.size());
    const std::size_t space = name.substr(0, arguments).rfind("::");
    return space == std::string::npos ? name : name.substr(space + 2);
}

NamedTensors Module::named_parameters() const {
    NamedTensors named;
    std::unordered_set<const void*> seen;
    Walk walk;
    walk.parameter = [&](const std::string& path, Parameter& p) {
        if (seen.insert(p.identity()).second) named.emplace_back(path, p);
    };
    walk.start(*this);
    return named;
}

NamedTensors Module::named_buffers() const {
    NamedTensors named;
    std::unordered_set<const void*> seen;
    Walk walk;
    walk.buffer = [&](const std::string& path, Buffer& b) {
        if (seen.insert(b.identity()).second) named.emplace_back(path, b);
    };
    walk.start(*this);
    return named;
}

namespace {

std::vector<Tensor> without_names(NamedTensors named) {
    std::vector<Tensor> tensors;
    tensors.reserve(named.size());
    for (auto& entry : named) tensors.push_back(std::move(entry.second));
    return tensors;
}

/// Calls f on the module and everything below it, children first. A module listed twice comes once.
void for_each_module(Module& root, const std::function<void(Module&)>& f) {
    std::unordered_set<const Module*> seen;
    std::vector<Module*> order{&root};
    Walk walk;
    walk.enter = [&](const std::string&, Module& child) {
        if (!seen.insert(&child).second) return false;
        order.push_back(&child);
        return true;
    };
    walk.start(root);
    for (auto module = order.rbegin(); module != order.rend(); ++module) f(**module);
}

}  // namespace

std::vector<Tensor> Module::parameters() const { return without_names(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return without_names(named_buffers()); }

std::vector<std::pair<std::string, Module*>> Module::children() const {
    std::vector<std::pair<std::string, Module*>> direct;
    Walk walk;
    walk.enter = [&](const std::string& path, Module& child) {
        direct.emplace_back(path, &child);
        return false;
    };
    walk.start(*this);
    return direct;
}

std::int64_t Module::parameter_count() const {
    std::int64_t count = 0;
    for (const Tensor& p : parameters()) count += p.numel();
    return count;
}

std::string Module::summary() const {
    std::string lines = text(kind(), ": ", parameter_count(), " parameters\n");
    std::unordered_map<const void*, std::string> first;
    const auto line = [&](const std::string& path, const Tensor& x, const char* what) {
        const auto indent = std::size_t(std::count(path.begin(), path.end(), '.') + 1) * 2;
        const auto [seen, fresh] = first.emplace(x.identity(), path);
        lines += std::string(indent, ' ') + text(path.substr(path.rfind('.') + 1), ": ", what, " ", x.shape(), " ",
                                                 x.dtype(), fresh ? std::string() : " = " + seen->second, "\n");
    };
    Walk walk;
    walk.parameter = [&](const std::string& path, Parameter& p) {
        line(path, p, p.requires_grad() ? "parameter" : "frozen");
    };
    walk.buffer = [&](const std::string& path, Buffer& b) { line(path, b, "buffer"); };
    walk.enter = [&](const std::string& path, Module& child) {
        const auto indent = std::size_t(std::count(path.begin(), path.end(), '.') + 1) * 2;
        lines += std::string(indent, ' ') + text(path.substr(path.rfind('.') + 1), ": ", child.kind(), ", ",
                                                 child.parameter_count(), " parameters\n");
        return true;
    };
    walk.start(*this);
    return lines;
}

template <class Change>
void Module::move_all(const Change& change) {
    audit();
    const NoGrad scope;
    // Everything is made before anything is moved: running out of memory half-way leaves the module as it was.
    std::vector<std::pair<Tensor, Tensor>> moves;
    std::unordered_set<const void*> seen;
    const auto plan = [&](const Tensor& x) {
        if (!seen.insert(x.identity()).second) return;
        Tensor moved = change(x.without_past());
        if (&moved.storage() != &x.storage()) moves.emplace_back(x, std::move(moved));
    };
    Walk walk;
    walk.parameter = [&](const std::string&, Parameter& p) { plan(p); };
    walk.buffer = [&](const std::string&, Buffer& b) { plan(b); };
    walk.start(*this);
    for (const auto& [x, moved] : moves) move_leaf(x, moved);
}

void Module::to(Device device) {
    gradus::check_device(device);
    move_all([&](const Tensor& x) { return gradus::to(x, device); });
    for_each_module(*this, [&](Module& module) { module.home_ = device; });
}

void Module::to(DType dtype) {
    check(is_floating(dtype), "to: parameters are floating: got ", dtype);
    move_all([&](const Tensor& x) { return is_floating(x.dtype()) && x.dtype() != dtype ? cast(x, dtype) : x; });
}

namespace {

/// "weight on cpu, bias on cpu:1", every tensor of the tree, where they are on several devices; else empty.
std::string spread(const Module& module, std::optional<Device>& found) {
    std::string places;
    bool mixed = false;
    const auto look = [&](const std::string& path, const Tensor& x) {
        if (!found) found = x.device();
        mixed = mixed || *found != x.device();
        places += text(places.empty() ? "" : ", ", path, " on ", x.device());
    };
    Walk walk;
    walk.parameter = look;
    walk.buffer = look;
    walk.start(module);
    return mixed ? places : std::string();
}

}  // namespace

Device Module::device() const {
    std::optional<Device> found;
    const std::string places = spread(*this, found);
    check(places.empty(), "device: ", kind(), " is on several devices: ", places,
          ": move the whole module with to(device)");
    return found.value_or(home_);
}

void Module::check_device() const {
    audit();
    device();
}

void Module::train(bool on) {
    for_each_module(*this, [on](Module& module) { module.training_ = on; });
}

void Module::zero_grad() {
    for (const Tensor& p : parameters()) gradus::zero_grad(p);
}

void Module::requires_grad(bool wanted) {
    for (const Tensor& p : parameters()) require_grad(p, wanted);
}

void Module::apply(const std::function<void(Module&)>& function) { for_each_module(*this, function); }

std::string ModuleFrame::path() const {
    std::vector<const Module*> running;  // innermost first
    for (const Frame* frame = this; frame; frame = frame->outer)
        if (const auto* of_module = dynamic_cast<const ModuleFrame*>(frame)) running.push_back(of_module->module_);
    const Module* anchor = running.back();
    std::string start, path = anchor->kind();
    for (auto next = running.rbegin() + 1; next != running.rend(); ++next) {
        std::string below;
        Walk walk;
        walk.enter = [&](const std::string& name, Module& child) {
            if (below.empty() && &child == *next) below = name;
            return below.empty();
        };
        if (*next != anchor) walk.start(*anchor);
        if (!below.empty()) {
            path = start + below;
        } else if (*next != anchor) {  // called from a module that does not list it
            path += "/" + (*next)->kind();
            start = path + ".";
            anchor = *next;
        }
    }
    return path;
}

}  // namespace gradus
