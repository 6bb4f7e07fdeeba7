// An ONNX file as plain structs: the nodes, attributes and constant arrays of a graph, and the arrays of its test data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradus::onnx {

/// The element types of ONNX, by the numbers that stand in the files.
enum class Type : int {
    undefined = 0,
    float32 = 1,
    uint8 = 2,
    int8 = 3,
    uint16 = 4,
    int16 = 5,
    int32 = 6,
    int64 = 7,
    string = 8,
    boolean = 9,
    float16 = 10,
    float64 = 11,
    uint32 = 12,
    uint64 = 13,
    complex64 = 14,
    complex128 = 15,
    bfloat16 = 16
};

/// The type's name as Gradus writes it ("f32"), or as ONNX does for those that Gradus has not.
const char* type_name(Type type);

/// Bytes of one element; 0 for strings and undefined.
std::size_t type_size(Type type);

/// A constant or a piece of test data: row-major little-endian elements. Strings carry no bytes.
struct Array {
    std::string name;
    std::vector<std::int64_t> dims;
    Type type = Type::undefined;
    std::vector<std::byte> bytes;
};

/// One attribute of a node; only the member that the file sets means something.
struct Attribute {
    float f = 0;
    std::int64_t i = 0;
    std::string s;
    std::vector<float> floats;
    std::vector<std::int64_t> ints;
    std::vector<std::string> strings;
    Array t;
};

/// One call of an op: names of what goes in (empty for an optional input left out) and what comes out.
struct Node {
    std::string op;
    std::string domain;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::map<std::string, Attribute> attributes;
    std::int64_t opset = 0;  ///< version of the node's domain, filled in by read_model
};

/// What a graph declares about one of its inputs or outputs.
struct Value {
    std::string name;
    bool is_tensor = false;       ///< false: a sequence, an optional, a map
    Type type = Type::undefined;  ///< of a tensor's elements
};

/// A graph with one flat list of nodes in the order in which they can be computed.
struct Model {
    std::vector<Node> nodes;
    std::vector<Array> constants;
    std::vector<Value> inputs;  ///< those that test data feeds: constants are not repeated here
    std::vector<Value> outputs;
};

/// Decodes `model.onnx`. Throws gradus::Error on a file that is missing or not well formed.
Model read_model(const std::string& path);

/// Decodes an `input_0.pb` or `output_0.pb` that holds a tensor. Throws gradus::Error as read_model does.
Array read_array(const std::string& path);

}  // namespace gradus::onnx
