// A named batch: tensors of mixed dtypes that belong together and move to a device as a whole.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/ops.h"
#include "gradus/nn/state.h"

namespace gradus {

/// batch["ids"] = ids; later batch["ids"] on a const Batch, or batch.at("ids"): an unknown name is an error that lists
/// the names.
class Batch {
  public:
    Batch() = default;
    Batch(NamedTensors tensors) {
        for (auto& [name, tensor] : tensors) {
            check(!contains(name), "batch: ", Quoted{name}, " is given twice");
            tensors_.emplace_back(name, tensor);
        }
    }

    /// For writing: makes the entry where there is none.
    Tensor& operator[](const std::string& name) {
        for (auto& [known, tensor] : tensors_)
            if (known == name) return tensor;
        return tensors_.emplace_back(name, Tensor()).second;
    }
    const Tensor& operator[](const std::string& name) const { return at(name); }
    const Tensor& at(const std::string& name) const {
        for (const auto& [known, tensor] : tensors_)
            if (known == name && tensor.defined()) return tensor;
        fail("batch: there is no ", Quoted{name}, ", there are: ", names());
    }
    bool contains(const std::string& name) const {
        for (const auto& [known, tensor] : tensors_)
            if (known == name) return tensor.defined();
        return false;
    }
    std::size_t size() const { return tensors_.size(); }
    bool empty() const { return tensors_.empty(); }
    auto begin() const { return tensors_.begin(); }  ///< pairs of name and tensor, in the order they were added
    auto end() const { return tensors_.end(); }

    /// Every tensor on that device; those that are there already are shared, not copied.
    Batch to(Device device) const {
        Batch moved;
        for (const auto& [name, tensor] : tensors_) {
            check(tensor.defined(), "batch: ", Quoted{name}, " was never given a tensor, there are: ", names());
            moved.tensors_.emplace_back(name, gradus::to(tensor, device));
        }
        return moved;
    }

  private:
    std::string names() const {
        std::string list;
        for (const auto& [name, tensor] : tensors_)
            if (tensor.defined()) list += (list.empty() ? "" : ", ") + to_string(Quoted{name});
        return list.empty() ? "none" : list;
    }
    NamedTensors tensors_;
};

}  // namespace gradus
