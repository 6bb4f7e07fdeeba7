// A module is a tree of parameters, buffers and child modules, all of them named once, in visit().
//
// Note [How a layer is written]
//     class Linear final : public Layer<Linear> {
//       public:
//         Linear(std::int64_t in, std::int64_t out, Generator& rng, Device device = {});
//         Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }
//         void visit(Visitor& v) override { v("weight", weight); v("bias", bias); }
//         Parameter weight, bias;
//     };
// Call it as layer(x), so that errors name its path. A tensor that belongs to the layer is a Parameter or a Buffer; a
// raw Tensor member would stay behind on to(), so to() refuses it (also inside optionals, arrays and structs; tensors
// in containers on the heap, such as std::vector<Tensor>, are not seen). Inside a layer write gradus::to(x, device):
// the member `to` hides the op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gradus/core/tensor.h"
#include "gradus/core/thread_state.h"
#include "gradus/nn/state.h"

namespace gradus {

class Module;
class Visitor;

/// A leaf that an optimizer changes. Copies of one handle are one parameter (tied weights); an undefined one is not
/// there at all.
class Parameter : public Tensor {
  public:
    Parameter() = default;
    explicit Parameter(const Tensor& value);  ///< shares the value's elements; floating dtypes
};

/// A tensor that belongs to the module's state and is not trained. Non-persistent ones are left out of the state dict.
class Buffer : public Tensor {
  public:
    Buffer() = default;
    explicit Buffer(const Tensor& value, bool persistent = true);
    bool persistent() const { return persistent_; }

  private:
    bool persistent_ = true;
};

struct LoadOptions {
    bool strict = true;  ///< any difference throws, naming all of them; else what fits is loaded and the rest reported
    std::string strip_prefix;  ///< taken off every name that begins with it, as "module."
};
/// What did not fit, name by name. `misshapen` entries say both shapes and dtypes.
struct LoadReport {
    std::vector<std::string> missing, unexpected, misshapen;
    bool clean() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
};

class Module {
  public:
    virtual ~Module() = default;
    Module& operator=(const Module&) = delete;

    /// The one list of parameters, buffers and children; everything below follows from it.
    virtual void visit(Visitor& v) = 0;
    virtual std::string kind() const;  ///< the class's name without namespaces

    std::vector<Tensor> parameters() const;  ///< tied ones once
    NamedTensors named_parameters()
        const;  ///< in the order of visit, names joined by dots; tied ones under their first name
    std::vector<Tensor> buffers() const;
    NamedTensors named_buffers() const;
    std::vector<std::pair<std::string, Module*>> children() const;  ///< direct ones
    std::int64_t parameter_count() const;                           ///< elements of all parameters, tied ones once
    std::string summary() const;                                    ///< the tree with shapes and counts, a line each

    /// The present values: parameters and persistent buffers, tied ones under each name. Storage is shared, not copied.
    NamedTensors state_dict() const;
    /// Copies values in: all or, when it throws, none. One name of a tied tensor is enough; two with different values
    /// throw.
    LoadReport load_state_dict(const NamedTensors& state, const LoadOptions& options = {});

    /// Moves every parameter (with its gradient) and buffer: handles held before see the moved elements, tied ones stay
    /// tied. Throws, and moves nothing, when a module owns a raw Tensor.
    void to(Device device);
    void to(DType dtype);  ///< floating parameters and buffers only; integer and bool buffers keep theirs
    /// Where all tensors are; throws when they are on several devices. Without any: where the last to() sent the
    /// module.
    Device device() const;
    void check_device()
        const;  ///< throws, naming each one, unless every tensor is on one device and none is a raw member

    void train(bool on = true);  ///< this module and all below
    void eval() { train(false); }
    bool training() const { return training_; }
    void zero_grad();
    void requires_grad(bool wanted);                           ///< false freezes all parameters
    void apply(const std::function<void(Module&)>& function);  ///< children first, then this one

  protected:
    Module() = default;
    Module(Module&&) noexcept = default;
    Module& operator=(Module&&) noexcept = default;
    /// Only clone() may copy: a plain copy would share its tensors with the original.
    Module(const Module& other);

    /// The object's own bytes, which are searched for raw tensors. Empty: not searched.
    virtual std::span<const std::byte> extent() const { return {}; }
    virtual std::unique_ptr<Module> copy() const;

  private:
    friend struct ModuleAccess;
    void audit() const;
    template <class Change>
    void move_all(const Change& change);
    bool training_ = true;
    Device home_;
};

/// Receives the names of a module. A class that lists tensors of its own kind (an optimizer) overrides what it needs.
class Visitor {
  public:
    virtual ~Visitor() = default;
    void operator()(std::string_view name, Parameter& parameter) { on_parameter(name, parameter); }
    void operator()(std::string_view name, Buffer& buffer) { on_buffer(name, buffer); }
    void operator()(std::string_view name, Tensor&) = delete;  // declare the member as Parameter or Buffer
    void operator()(std::string_view name, Module& child) { on_child(name, child); }
    template <class M>
    void operator()(std::string_view name, std::optional<M>& child) {
        if (child) (*this)(name, *child);
    }
    template <class M>
    void operator()(std::string_view name, std::unique_ptr<M>& child) {
        if (child) (*this)(name, *child);
    }
    template <class M>
    void operator()(std::string_view name, std::vector<M>& children) {  // layers.0, layers.1, ...
        for (std::size_t i = 0; i < children.size(); ++i)
            (*this)(std::string(name) + "." + std::to_string(i), children[i]);
    }

  protected:
    virtual void on_parameter(std::string_view name, Parameter& parameter) = 0;
    virtual void on_buffer(std::string_view name, Buffer& buffer) = 0;
    virtual void on_child(std::string_view name, Module& child) = 0;
};

/// While one lives on this thread, errors name this module's path from the outermost running module:
/// encoder.layers.2.self_attention.
class ModuleFrame final : public Frame {
  public:
    explicit ModuleFrame(const Module& module) : module_(&module) {
        outer = thread_state().frame;
        thread_state().frame = this;
    }
    ~ModuleFrame() { thread_state().frame = outer; }
    ModuleFrame(const ModuleFrame&) = delete;
    ModuleFrame& operator=(const ModuleFrame&) = delete;
    /// Looked up in the outermost module's tree, so that running a module costs two words and no string.
    std::string path() const override;

  private:
    const Module* module_;
};

[[noreturn]] void refuse_copy(const Module& module);

/// Base of layers: calls forward under a name frame and knows how to copy and search a Derived.
template <class Derived>
class Layer : public Module {
  public:
    template <class... Args>
    decltype(auto) operator()(Args&&... args) {
        const ModuleFrame frame(*this);
        return static_cast<Derived&>(*this).forward(std::forward<Args>(args)...);
    }
    template <class... Args>
    decltype(auto) operator()(Args&&... args) const {
        const ModuleFrame frame(*this);
        return static_cast<const Derived&>(*this).forward(std::forward<Args>(args)...);
    }

  protected:
    std::span<const std::byte> extent() const override {
        return {reinterpret_cast<const std::byte*>(static_cast<const Derived*>(this)), sizeof(Derived)};
    }
    std::unique_ptr<Module> copy() const override {
        if constexpr (std::is_copy_constructible_v<Derived>)
            return std::make_unique<Derived>(static_cast<const Derived&>(*this));
        else
            refuse_copy(*this);
    }
};

std::unique_ptr<Module> clone_module(const Module& module);
/// A copy with tensors of its own on the same device: tied ones stay tied, gradients and hooks are not copied. Throws
/// for raw tensors.
template <class M>
requires std::is_base_of_v<Module, M> std::unique_ptr<M> clone(const M& module) {
    return std::unique_ptr<M>(static_cast<M*>(clone_module(module).release()));
}

/// For containers that copy the modules they own from inside their copy constructor, while clone() runs.
std::unique_ptr<Module> copy_in_clone(const Module& module);

}  // namespace gradus
