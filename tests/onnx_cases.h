// Every ONNX op that Gradus can compute, written in terms of Gradus's own ops.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/core/tensor.h"
#include "gradus/tests/onnx_reader.h"

namespace gradus::onnx {

using Tensors = std::vector<Tensor>;

/// A node with its arguments: what a case reads its attributes and inputs from.
class Call {
  public:
    Call(const Node& node, Tensors inputs) : node_(node), inputs_(std::move(inputs)) {}

    std::int64_t opset() const { return node_.opset; }
    int outputs() const { return static_cast<int>(node_.outputs.size()); }

    /// Inputs given, the last ones may be missing.
    int inputs() const { return static_cast<int>(inputs_.size()); }
    bool has(int at) const { return at < inputs() && inputs_[static_cast<std::size_t>(at)].defined(); }
    /// Input number `at`; throws if it was left out.
    const Tensor& operator[](int at) const;
    const Tensors& all() const { return inputs_; }

    /// Attributes, or the fallback where the node has none of that name.
    bool has(const std::string& name) const { return node_.attributes.count(name) != 0; }
    std::int64_t integer(const std::string& name, std::int64_t fallback) const;
    double real(const std::string& name, double fallback) const;
    std::string string(const std::string& name, const std::string& fallback) const;
    std::vector<std::int64_t> integers(const std::string& name) const;
    const Attribute& attribute(const std::string& name) const;

    /// Integers that old versions of an op take as the attribute `name` and new ones as input `at`; empty if neither.
    std::vector<std::int64_t> integers(const std::string& name, int at) const;

  private:
    const Node& node_;
    Tensors inputs_;
};

using Case = Tensors (*)(const Call&);
using Cases = std::map<std::string, Case>;

Cases pointwise_cases();  ///< arithmetic, activations, comparisons, logic, casts
Cases reduce_cases();     ///< sums and their kin, arg, cumulative, top k, einsum
Cases shape_cases();      ///< views, copies, constants
Cases index_cases();      ///< gather, scatter and their kin
Cases network_cases();    ///< products, softmax, normalisation, losses, optimizer steps

/// All of the above by the op's name; `Gradient` is computed by `evaluate` itself.
const Cases& cases();
bool has_case(const std::string& op);

/// The type Gradus computes in, or none.
std::optional<DType> dtype(Type type);

/// An array on the CPU. `declared` wins over the array's own type where both have two bytes: bf16 travels as uint16.
Tensor to_tensor(const Array& array, Type declared);
Array to_array(const Tensor& x);

/// Runs the graph, node by node. Throws gradus::Error naming the op where one fails.
Tensors evaluate(const Model& model, const Tensors& inputs);

}  // namespace gradus::onnx
