#include "gradus/nn/optimizer.h"

#include <cmath>
#include <map>
#include <type_traits>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/pointwise.h"
#include "gradus/kernels/update.h"

namespace gradus {

void Optimizer::add_group(const NamedTensors& parameters) {
    const int group = groups_++;
    check_options(group);
    check(!parameters.empty(), name_, ": group ", group, " has no parameters");
    for (const auto& [name, parameter] : parameters) {
        check(parameter.defined(), name_, ": parameter ", Quoted{name}, " is undefined");
        check(is_floating(parameter.dtype()) && parameter.is_leaf(), name_, ": parameter ", Quoted{name},
              " must be a floating leaf: it is ", parameter.dtype(),
              parameter.is_leaf() ? "" : " and the result of an op");
        check(parameter.is_contiguous(), name_, ": parameter ", Quoted{name}, " of shape ", parameter.shape(),
              " is not contiguous: clone it first");
        for (const Slot& other : slots_) {
            check(other.name != name, name_, ": two parameters are named ", Quoted{name});
            check(other.parameter.identity() != parameter.identity() &&
                      (parameter.numel() == 0 || other.parameter.address() != parameter.address()),
                  name_, ": ", Quoted{name}, " and ", Quoted{other.name}, " are one parameter: list it once");
        }
        slots_.push_back({name, parameter, group, 0, {}});
    }
}

NamedTensors Optimizer::parameters() const {
    NamedTensors list;
    for (const Slot& slot : slots_) list.emplace_back(slot.name, slot.parameter);
    return list;
}

double Optimizer::lr(int group) const {
    check(group >= 0 && group < groups_, name_, ": there is no group ", group, ", there are ", groups_);
    return numbers(group).front().second;
}

void Optimizer::set_lr(double lr, int group) {
    check(group >= 0 && group < groups_, name_, ": there is no group ", group, ", there are ", groups_);
    check(lr >= 0, name_, ": the learning rate must be 0 or more: got ", lr);
    set_number(group, "lr", lr);
}

void Optimizer::zero_grad() {
    for (const Slot& slot : slots_) gradus::zero_grad(slot.parameter);
}

void Optimizer::check_gradient(const Slot& slot, const Tensor& gradient) const {
    const Tensor& p = slot.parameter;
    check(gradient.device() == p.device(), name_, ": parameter ", Quoted{slot.name}, " is on ", p.device(),
          ", its gradient on ", gradient.device(), ": call backward after moving the module");
    for (const Tensor& state : slot.state)
        check(state.shape() == p.shape(), name_, ": parameter ", Quoted{slot.name}, " changed its shape from ",
              state.shape(), " to ", p.shape());
}

void Optimizer::prepare(Slot& slot) const {
    const Tensor& p = slot.parameter;
    const DType dtype = kernels::state_dtype(p.dtype());
    for (Tensor& state : slot.state) state = cast(to(state, p.device()), dtype);
    while (slot.state.size() < state_names(slot.group).size())
        slot.state.push_back(zeros(p.shape(), dtype, p.device()));
}

Tensor Optimizer::step(const StepOptions& options) {
    const NoGrad no_grad;
    check(options.clip_norm >= 0, name_, ": clip_norm must be 0 or more: got ", options.clip_norm);
    std::map<Device, std::vector<Ready>> devices;
    for (Slot& slot : slots_)
        if (const Tensor g = slot.parameter.grad(); g.defined())
            devices[slot.parameter.device()].push_back({&slot, contiguous(g)});
    for (const auto& [device, ready] : devices)
        for (const Ready& r : ready) check_gradient(*r.slot, r.gradient);

    const bool clip = options.clip_norm > 0;
    kernels::GradientScale scale{options.gradient_scale, {}, options.clip_norm};
    double total = 0;
    for (const auto& [device, ready] : devices) {
        if (!clip && !options.check_finite) break;
        std::vector<Tensor> gradients;
        for (const Ready& r : ready) gradients.push_back(r.gradient);
        const Tensor sums = kernels::sums_of_squares(gradients);
        if (options.check_finite) check_finite(ready, sums);
        scale.squares = select(sums, 0, std::int64_t(ready.size()));
        if (clip && devices.size() > 1) total += scale.squares.item();
    }
    if (clip && devices.size() != 1) scale.squares = Tensor::scalar(total, DType::f64, Device{});
    const Tensor norm = clip ? gradus::sqrt(scale.squares) * options.gradient_scale : Tensor();
    if (!clip) scale.squares = {};
    for (auto& [device, ready] : devices) {
        for (const Ready& r : ready) prepare(*r.slot);
        for (const Ready& r : ready) ++r.slot->steps;
        kernels::GradientScale here = scale;
        if (clip) here.squares = to(scale.squares, device);
        update(ready, here);
    }
    return norm;
}

void Optimizer::check_finite(const std::vector<Ready>& ready, const Tensor& sums) const {
    const std::vector<double> squares = sums.to_vector<double>();
    for (std::size_t i = 0; i < ready.size(); ++i)  // the sum is the quicker test, but may overflow over finite numbers
        check(std::isfinite(squares[i]) || kernels::all_finite(ready[i].gradient), name_,
              ": the gradient of parameter ", Quoted{ready[i].slot->name},
              " holds NaN or Inf, nothing was changed: look for the op with GRADUS_ANOMALY=1");
}

NamedTensors Optimizer::state_dict() const {
    NamedTensors state;
    for (int group = 0; group < groups_; ++group)
        for (const auto& [name, value] : numbers(group))
            state.emplace_back(text("group.", group, ".", name), Tensor::scalar(value, DType::f64, Device{}));
    for (const Slot& slot : slots_) {
        if (slot.steps == 0) continue;
        state.emplace_back("state." + slot.name + ".steps", Tensor::from({slot.steps}, {}, Device{}));
        const auto names = state_names(slot.group);
        for (std::size_t i = 0; i < names.size(); ++i)
            state.emplace_back("state." + slot.name + "." + names[i], slot.state[i]);
    }
    return state;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
    const NoGrad no_grad;
    std::map<std::string, Tensor> given;
    std::string faults;
    for (const auto& [name, tensor] : state)
        if (!given.emplace(name, tensor).second) faults += text("\n  twice: ", Quoted{name});
    const auto take = [&](const std::string& name, const Shape& shape, DType dtype) {
        const auto found = given.find(name);
        if (found == given.end()) {
            faults += text("\n  missing: ", Quoted{name});
            return Tensor();
        }
        const Tensor tensor = found->second;
        given.erase(found);
        if (tensor.shape() == shape && tensor.dtype() == dtype) return tensor;
        faults += text("\n  unlike: ", Quoted{name}, ": expected ", shape, " ", dtype, ", got ", tensor.shape(), " ",
                       tensor.dtype());
        return Tensor();
    };
    std::vector<Numbers> old, loaded;
    for (int group = 0; group < groups_; ++group) {
        old.push_back(numbers(group));
        loaded.push_back(old.back());
        for (auto& [name, value] : loaded.back())
            if (const Tensor t = take(text("group.", group, ".", name), {}, DType::f64); t.defined()) value = t.item();
    }
    std::vector<Slot> slots = slots_;
    for (Slot& slot : slots) {
        slot.steps = 0;
        slot.state.clear();
        const std::string prefix = "state." + slot.name + ".";
        if (!given.contains(prefix + "steps"))
            continue;  // not updated yet: it has no state, and slots of it are unexpected
        if (const Tensor t = take(prefix + "steps", {}, DType::i64); t.defined()) slot.steps = t.item<std::int64_t>();
        if (slot.steps < 1)
            faults += text("\n  wrong: ", Quoted{prefix}, "steps is ", slot.steps, ", expected 1 or more");
        for (const char* name : state_names(slot.group)) {
            const Tensor t = take(prefix + name, slot.parameter.shape(), kernels::state_dtype(slot.parameter.dtype()));
            if (t.defined()) slot.state.push_back(clone(to(t, slot.parameter.device())));
        }
    }
    for (const auto& [name, tensor] : given) faults += text("\n  unexpected: ", Quoted{name});
    check(faults.empty(), name_, ": the state does not fit, nothing was changed:", faults);
    const auto set = [&](const std::vector<Numbers>& all) {
        for (int group = 0; group < groups_; ++group)
            for (const auto& [name, value] : all[std::size_t(group)]) set_number(group, name, value);
    };
    set(loaded);
    try {
        for (int group = 0; group < groups_; ++group) check_options(group);
    } catch (...) {
        set(old);
        throw;
    }
    slots_ = std::move(slots);
}

// ---- SGD ----

void SgdOptions::visit(const std::function<void(const char*, double&)>& visitor) {
    visitor("lr", lr);
    visitor("momentum", momentum);
    visitor("dampening", dampening);
    visitor("weight_decay", weight_decay);
    double flag = nesterov;
    visitor("nesterov", flag);
    nesterov = flag != 0;
}

void SgdOptions::check() const {
    gradus::check(lr >= 0 && momentum >= 0 && weight_decay >= 0,
                  "sgd: lr, momentum and weight_decay must be 0 or more: got ", lr, ", ", momentum, ", ", weight_decay);
    gradus::check(!nesterov || (momentum > 0 && dampening == 0),
                  "sgd: nesterov needs a momentum above 0 and no dampening: got ", momentum, " and ", dampening);
}

SGD::SGD(const NamedTensors& parameters, const SgdOptions& options)
    : SGD(std::vector<ParameterGroup<SgdOptions>>{{parameters, options}}) {}
SGD::SGD(const std::vector<ParameterGroup<SgdOptions>>& groups) : GroupedOptimizer("sgd", groups) {}

std::vector<const char*> SGD::state_names(int group) const {
    if (options(group).momentum == 0) return {};
    return {"momentum"};
}

void SGD::update(const std::vector<Ready>& ready, const kernels::GradientScale& scale) {
    std::vector<kernels::SgdUpdate> updates;
    for (const auto& [slot, gradient] : ready) {
        const SgdOptions& o = options(slot->group);
        updates.push_back({slot->parameter,
                           gradient,
                           slot->state.empty() ? Tensor() : slot->state[0],
                           {o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, slot->steps == 1}});
    }
    kernels::sgd(updates, scale);
}

// ---- Adam, AdamW ----

namespace {

template <class Options>
inline constexpr bool decoupled = std::is_same_v<Options, AdamWOptions>;

void visit_adam(auto& options, const std::function<void(const char*, double&)>& visitor) {
    visitor("lr", options.lr);
    visitor("beta1", options.beta1);
    visitor("beta2", options.beta2);
    visitor("eps", options.eps);
    visitor("weight_decay", options.weight_decay);
}

void check_adam(const char* name, const auto& o) {
    check(o.lr >= 0 && o.eps >= 0 && o.weight_decay >= 0, name, ": lr, eps and weight_decay must be 0 or more: got ",
          o.lr, ", ", o.eps, ", ", o.weight_decay);
    check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, name, ": the betas must lie in [0, 1): got ",
          o.beta1, " and ", o.beta2);
}

}  // namespace

void AdamOptions::visit(const std::function<void(const char*, double&)>& visitor) { visit_adam(*this, visitor); }
void AdamWOptions::visit(const std::function<void(const char*, double&)>& visitor) { visit_adam(*this, visitor); }
void AdamOptions::check() const { check_adam("adam", *this); }
void AdamWOptions::check() const { check_adam("adamw", *this); }

template <class Options>
AdamFamily<Options>::AdamFamily(const NamedTensors& parameters, const Options& options)
    : AdamFamily(std::vector<ParameterGroup<Options>>{{parameters, options}}) {}

template <class Options>
AdamFamily<Options>::AdamFamily(const std::vector<ParameterGroup<Options>>& groups)
    : GroupedOptimizer<Options>(decoupled<Options> ? "adamw" : "adam", groups) {}

template <class Options>
std::vector<const char*> AdamFamily<Options>::state_names(int) const {
    return {"mean", "mean_square"};
}

template <class Options>
void AdamFamily<Options>::update(const std::vector<Optimizer::Ready>& ready, const kernels::GradientScale& scale) {
    std::vector<kernels::AdamUpdate> updates;
    for (const auto& [slot, gradient] : ready) {
        const Options& o = this->options(slot->group);
        updates.push_back({slot->parameter,
                           gradient,
                           slot->state[0],
                           slot->state[1],
                           {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, decoupled<Options>, slot->steps}});
    }
    kernels::adam(updates, scale);
}

template class AdamFamily<AdamOptions>;
template class AdamFamily<AdamWOptions>;

}  // namespace gradus
