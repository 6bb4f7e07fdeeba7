// A walk over a module's tree that knows each entry's dotted path.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gradus/nn/module.h"

namespace gradus {

/// Set the functions that are wanted, then start. Undefined parameters and buffers are passed over; a tied entry comes
/// once per name.
class Walk final : public Visitor {
  public:
    std::function<void(const std::string& path, Parameter&)> parameter;
    std::function<void(const std::string& path, Buffer&)> buffer;
    std::function<bool(const std::string& path, Module&)>
        enter;  ///< before a child's entries; false passes the child over

    /// Visits below `root`. visit() only lists members, so a const tree may be walked by those who only read.
    void start(const Module& root) { const_cast<Module&>(root).visit(*this); }

  protected:
    void on_parameter(std::string_view name, Parameter& p) override {
        if (parameter && p.defined()) parameter(join(name), p);
    }
    void on_buffer(std::string_view name, Buffer& b) override {
        if (buffer && b.defined()) buffer(join(name), b);
    }
    void on_child(std::string_view name, Module& child) override {
        const std::string path = join(name);
        if (enter && !enter(path, child)) return;
        const std::string outer = std::exchange(prefix_, path);
        child.visit(*this);
        prefix_ = outer;
    }

  private:
    std::string join(std::string_view name) const {
        return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
    }
    std::string prefix_;
};

}  // namespace gradus
