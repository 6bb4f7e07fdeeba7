#include "gradus/tests/onnx_cases.h"

#include <algorithm>
#include <set>

#include "gradus/autograd/node.h"
#include "gradus/core/error.h"

namespace gradus::onnx {
namespace {

// `Gradient` (of ONNX's training preview) names values of the graph that it stands in: dy / dx for the y and xs named.
Tensors gradient_node(const Node& node, const std::map<std::string, Tensor>& values) {
    std::vector<Tensor> xs;
    for (const std::string& name : node.attributes.at("xs").strings) xs.push_back(values.at(name));
    return gradients(values.at(node.attributes.at("y").s), xs);
}

std::set<std::string> differentiated(const Model& model) {
    std::set<std::string> names;
    for (const Node& node : model.nodes) {
        if (node.op != "Gradient") continue;
        const std::vector<std::string>& xs = node.attributes.at("xs").strings;
        names.insert(xs.begin(), xs.end());
    }
    return names;
}

}  // namespace

const Tensor& Call::operator[](int at) const {
    check(has(at), node_.op, ": input ", at, " is missing");
    return inputs_[static_cast<std::size_t>(at)];
}

const Attribute& Call::attribute(const std::string& name) const {
    const auto found = node_.attributes.find(name);
    check(found != node_.attributes.end(), node_.op, ": attribute '", name, "' is missing");
    return found->second;
}

std::int64_t Call::integer(const std::string& name, std::int64_t fallback) const {
    return has(name) ? attribute(name).i : fallback;
}

double Call::real(const std::string& name, double fallback) const {
    return has(name) ? static_cast<double>(attribute(name).f) : fallback;
}

std::string Call::string(const std::string& name, const std::string& fallback) const {
    return has(name) ? attribute(name).s : fallback;
}

std::vector<std::int64_t> Call::integers(const std::string& name) const {
    return has(name) ? attribute(name).ints : std::vector<std::int64_t>();
}

std::vector<std::int64_t> Call::integers(const std::string& name, int at) const {
    return has(at) ? (*this)[at].to_vector<std::int64_t>() : integers(name);
}

const Cases& cases() {
    static const Cases all = [] {
        Cases merged;
        for (Cases part : {pointwise_cases(), reduce_cases(), shape_cases(), index_cases(), network_cases()})
            merged.merge(part);
        return merged;
    }();
    return all;
}

bool has_case(const std::string& op) { return op == "Gradient" || cases().count(op) != 0; }

std::optional<DType> dtype(Type type) {
    switch (type) {
        case Type::float32:
            return DType::f32;
        case Type::float64:
            return DType::f64;
        case Type::float16:
            return DType::f16;
        case Type::bfloat16:
            return DType::bf16;
        case Type::int64:
            return DType::i64;
        case Type::int32:
            return DType::i32;
        case Type::uint8:
            return DType::u8;
        case Type::boolean:
            return DType::boolean;
        default:
            return std::nullopt;
    }
}

Tensor to_tensor(const Array& array, Type declared) {
    const Type type = array.type == Type::uint16 && declared == Type::bfloat16 ? declared : array.type;
    const std::optional<DType> element = dtype(type);
    check(element.has_value(), "onnx: no tensors of ", type_name(type));
    Tensor x = Tensor::empty(Shape(array.dims), *element, Device{});
    copy_from_host(x, array.bytes.data());
    return x;
}

Array to_array(const Tensor& x) {
    Array array;
    array.dims.assign(x.shape().begin(), x.shape().end());
    for (int type = 0; type <= static_cast<int>(Type::bfloat16); ++type) {
        if (dtype(static_cast<Type>(type)) == x.dtype()) array.type = static_cast<Type>(type);
    }
    array.bytes.resize(static_cast<std::size_t>(x.numel()) * type_size(array.type));
    copy_to_host(x, array.bytes.data());
    return array;
}

Tensors evaluate(const Model& model, const Tensors& inputs) {
    std::map<std::string, Tensor> values;
    for (const Array& array : model.constants) values[array.name] = to_tensor(array, array.type);
    for (std::size_t i = 0; i < inputs.size(); ++i) values[model.inputs[i].name] = inputs[i];
    for (const std::string& name : differentiated(model)) require_grad(values.at(name));
    for (const Node& node : model.nodes) {
        Tensors arguments;
        for (const std::string& name : node.inputs) arguments.push_back(name.empty() ? Tensor() : values.at(name));
        const Tensors results =
            node.op == "Gradient" ? gradient_node(node, values) : cases().at(node.op)(Call(node, std::move(arguments)));
        check(results.size() >= node.outputs.size(), node.op, ": ", node.outputs.size(), " outputs wanted, ",
              results.size(), " computed");
        for (std::size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = results[i];
    }
    Tensors outputs;
    for (const Value& output : model.outputs) outputs.push_back(values.at(output.name));
    return outputs;
}

}  // namespace gradus::onnx
