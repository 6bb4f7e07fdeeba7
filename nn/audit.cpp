// What a module owns outside its visit(): the search for raw tensors, and copying, which depends on there being none.
//
// Note [The search for raw tensors]
// A Tensor is one word, the address of its body. audit() reads the object's own bytes word by word and asks core
// whether a live tensor's body is there; words inside listed parameters, buffers and children are passed over. A word
// can also be garbage left in a disengaged optional, so a hit counts only when copying the object adds an owner to that
// body.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/walk.h"

namespace gradus {
namespace {

thread_local int cloning = 0;

struct CloneScope {
    CloneScope() { ++cloning; }
    ~CloneScope() { --cloning; }
    CloneScope(const CloneScope&) = delete;
    CloneScope& operator=(const CloneScope&) = delete;
};

using Bytes = std::span<const std::byte>;

template <class T>
Bytes bytes_of(const T& object) {
    return {reinterpret_cast<const std::byte*>(&object), sizeof(T)};
}

/// The bytes of an object's listed entries.
class Listed final : public Visitor {
  public:
    explicit Listed(std::function<Bytes(const Module&)> extent) : extent_(std::move(extent)) {}
    std::vector<Bytes> ranges;

  protected:
    void on_parameter(std::string_view, Parameter& p) override { ranges.push_back(bytes_of(p)); }
    void on_buffer(std::string_view, Buffer& b) override { ranges.push_back(bytes_of(b)); }
    void on_child(std::string_view, Module& child) override { ranges.push_back(extent_(child)); }

  private:
    std::function<Bytes(const Module&)> extent_;
};

}  // namespace

struct ModuleAccess {
    static Bytes extent(const Module& module) { return module.extent(); }
    static std::unique_ptr<Module> copy(const Module& module) { return module.copy(); }
    static void audit(const Module& module) { module.audit(); }

    /// Throws for a raw tensor among the object's own members.
    static void search(const Module& module, const std::string& path) {
        Listed listed(extent);
        const_cast<Module&>(module).visit(listed);
        const Bytes object = module.extent();
        for (std::size_t at = 0; at + sizeof(void*) <= object.size(); at += sizeof(void*)) {
            const void* word = nullptr;
            std::memcpy(&word, object.data() + at, sizeof word);
            const Tensor raw = Tensor::find(word);
            if (!raw.defined()) continue;
            const bool known = std::any_of(listed.ranges.begin(), listed.ranges.end(), [&](Bytes range) {
                return object.data() + at >= range.data() && object.data() + at < range.data() + range.size();
            });
            if (known || !owned(module, raw)) continue;
            fail("module: ", path.empty() ? module.kind() : path, " (", module.kind(), ") owns a raw Tensor of shape ",
                 raw.shape(), " on ", raw.device(), " at byte ", at,
                 " that its visit does not list: it would stay behind: declare the member as Parameter or Buffer and "
                 "list it");
        }
    }

  private:
    static bool owned(const Module& module, const Tensor& raw) {
        const int before = raw.use_count();
        try {
            const CloneScope scope;
            const std::unique_ptr<Module> copied = module.copy();
            return raw.use_count() > before;
        } catch (const Error&) {
            return true;  // it cannot be copied, so the word has to be believed
        }
    }
};

void Module::audit() const {
    ModuleAccess::search(*this, {});
    std::unordered_set<const Module*> seen;
    Walk walk;
    walk.enter = [&](const std::string& path, Module& child) {
        if (!seen.insert(&child).second) return false;
        ModuleAccess::search(child, path);
        return true;
    };
    walk.start(*this);
}

Module::Module(const Module& other) : training_(other.training_), home_(other.home_) {
    check(cloning > 0,
          "module: a plain copy would share its tensors with the original: use clone(module), or a reference");
}

std::unique_ptr<Module> Module::copy() const { refuse_copy(*this); }

void refuse_copy(const Module& module) {
    fail("clone: ", module.kind(), " cannot be copied: give it a copy constructor, or derive it from Layer");
}

std::unique_ptr<Module> copy_in_clone(const Module& module) {
    check(cloning > 0,
          "module: a plain copy would share its tensors with the original: use clone(module), or a reference");
    return ModuleAccess::copy(module);
}

std::unique_ptr<Module> clone_module(const Module& module) {
    ModuleAccess::audit(module);
    std::unique_ptr<Module> copied;
    {
        const CloneScope scope;
        copied = ModuleAccess::copy(module);
    }
    const NoGrad scope;
    // The copy still holds the original's handles; each gets a tensor of its own, the same one wherever the handle was
    // the same.
    std::unordered_map<const void*, Tensor> made;
    std::unordered_set<const void*> fresh;
    const auto copy_of = [&](const Tensor& x) {
        const auto [entry, first] = made.try_emplace(x.identity());
        if (first) {
            entry->second = clone(x.without_past());
            if (x.requires_grad()) require_grad(entry->second);
        }
        return entry->second;
    };
    Walk walk;
    walk.parameter = [&](const std::string&, Parameter& p) {
        if (fresh.contains(p.identity())) return;  // a shared module, listed twice
        static_cast<Tensor&>(p) = copy_of(p);
        fresh.insert(p.identity());
    };
    walk.buffer = [&](const std::string&, Buffer& b) {
        if (fresh.contains(b.identity())) return;
        static_cast<Tensor&>(b) = copy_of(b);
        fresh.insert(b.identity());
    };
    walk.start(*copied);
    return copied;
}

}  // namespace gradus
