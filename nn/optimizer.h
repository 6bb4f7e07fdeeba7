// Optimizers: parameter groups, the state each parameter carries, and the step that changes them in place.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gradus/nn/state.h"

namespace gradus {
namespace kernels {
struct GradientScale;
}

struct StepOptions {
    double gradient_scale = 1;  ///< every gradient is taken times this: 1 / a loss scale, or a clip_factor of one's own
    /// Above 0: gradients are clipped by their common norm as clip_grad_norm does, in the pass that updates. The norm
    /// stays on the device, the host does not wait for it (but where parameters lie on several devices).
    double clip_norm = 0;
    /// A gradient with NaN or Inf throws, naming the parameter, before anything is changed; the host waits for
    /// backward.
    bool check_finite = false;
};

/// Updates leaf tensors from their gradients. A parameter without a gradient, frozen or unused, is skipped: no decay,
/// no state. State follows its parameter to another device or dtype in the next step. Gradients stay readable until
/// zero_grad().
class Optimizer {
  public:
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    /// With clip_norm, returns the norm before clipping (after gradient_scale): 0-d f64 on the gradients' device (on
    /// the CPU where there are several); reading it waits for the device. Else returns an undefined tensor.
    Tensor step(const StepOptions& options = {});
    void zero_grad();

    int group_count() const { return groups_; }
    double lr(int group = 0) const;
    void set_lr(double lr, int group);
    NamedTensors parameters() const;  ///< of all groups

    /// `group.0.lr`, ... and per parameter with state `state.<name>.steps` and `state.<name>.<slot>`; numbers are 0-d
    /// f64 or i64 tensors, so that one file holds all. Slots are shared, not copied.
    NamedTensors state_dict() const;
    /// Takes copies. Every name must fit; all faults come in one error, after which nothing has changed.
    void load_state_dict(const NamedTensors& state);

  protected:
    struct Slot {
        std::string name;
        Tensor parameter;
        int group = 0;
        std::int64_t steps = 0;     ///< updates so far
        std::vector<Tensor> state;  ///< in the order of state_names(); empty before the first update
    };
    using Numbers = std::vector<std::pair<std::string, double>>;

    Optimizer(const char* name) : name_(name) {}
    void add_group(const NamedTensors& parameters);
    virtual Numbers numbers(int group) const = 0;  ///< a group's options by name; the first is "lr"
    virtual void set_number(int group, std::string_view name, double value) = 0;
    virtual void check_options(int group) const = 0;
    virtual std::vector<const char*> state_names(int group) const = 0;
    struct Ready {
        Slot* slot;  ///< `steps` already counts this step, and the state is there (zeros in the first)
        Tensor gradient;
    };
    /// Changes parameters of one device in one pass.
    virtual void update(const std::vector<Ready>& ready, const kernels::GradientScale& scale) = 0;

  private:
    void check_gradient(const Slot& slot, const Tensor& gradient) const;
    void check_finite(const std::vector<Ready>& ready, const Tensor& sums) const;
    void prepare(Slot& slot) const;
    const char* name_;
    int groups_ = 0;
    std::vector<Slot> slots_;
};

/// An optimizer whose groups differ in an Options struct.
template <class Options>
struct ParameterGroup {
    NamedTensors parameters;
    Options options;
};
template <class Options>
class GroupedOptimizer : public Optimizer {
  public:
    const Options& options(int group = 0) const { return options_.at(std::size_t(group)); }

  protected:
    GroupedOptimizer(const char* name, const std::vector<ParameterGroup<Options>>& groups) : Optimizer(name) {
        for (const auto& group : groups) {
            options_.push_back(group.options);
            add_group(group.parameters);
        }
    }
    Numbers numbers(int group) const override {
        Numbers list;
        Options copy = options(group);
        copy.visit([&](const char* name, double& value) { list.emplace_back(name, value); });
        return list;
    }
    void set_number(int group, std::string_view name, double value) override {
        options_.at(std::size_t(group)).visit([&](const char* known, double& held) {
            if (name == known) held = value;
        });
    }
    void check_options(int group) const override { options(group).check(); }

  private:
    std::vector<Options> options_;
};

struct SgdOptions {
    double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false;
    void visit(const std::function<void(const char*, double&)>& visitor);
    void check() const;
};
/// g += weight_decay · p; b = g at first, then momentum · b + (1 - dampening) · g; p -= lr · b (nesterov: g + momentum
/// · b).
class SGD final : public GroupedOptimizer<SgdOptions> {
  public:
    SGD(const NamedTensors& parameters, const SgdOptions& options);
    explicit SGD(const std::vector<ParameterGroup<SgdOptions>>& groups);

  protected:
    std::vector<const char*> state_names(int group) const override;
    void update(const std::vector<Ready>& ready, const kernels::GradientScale& scale) override;
};

struct AdamOptions {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    void visit(const std::function<void(const char*, double&)>& visitor);
    void check() const;
};
struct AdamWOptions {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
    void visit(const std::function<void(const char*, double&)>& visitor);
    void check() const;
};
/// m = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²; p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps), t counting from 1.
/// Adam adds weight_decay · p to g; AdamW leaves g as it is and begins with p *= 1 - lr · weight_decay.
template <class Options>
class AdamFamily final : public GroupedOptimizer<Options> {
  public:
    explicit AdamFamily(const NamedTensors& parameters, const Options& options = {});
    explicit AdamFamily(const std::vector<ParameterGroup<Options>>& groups);

  protected:
    std::vector<const char*> state_names(int group) const override;
    void update(const std::vector<Optimizer::Ready>& ready, const kernels::GradientScale& scale) override;
};
using Adam = AdamFamily<AdamOptions>;
using AdamW = AdamFamily<AdamWOptions>;
extern template class AdamFamily<AdamOptions>;
extern template class AdamFamily<AdamWOptions>;

}  // namespace gradus
