#include "gradus/tests/onnx_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "gradus/core/error.h"
#include "gradus/tests/protobuf.h"

namespace gradus::onnx {
namespace {

using protobuf::Field;
using protobuf::Message;

std::string text(const Field& field) { return std::string(field.bytes); }

// A repeated number stands packed in one field, or alone in each of several.
void append_integers(const Field& field, std::vector<std::int64_t>& to) {
    if (field.kind == 0) {
        to.push_back(static_cast<std::int64_t>(field.integer));
        return;
    }
    for (Message packed(field.bytes); !packed.empty();) to.push_back(static_cast<std::int64_t>(packed.varint()));
}

void append_raw(std::string_view raw, std::vector<std::byte>& to) {
    const auto* first = reinterpret_cast<const std::byte*>(raw.data());
    to.insert(to.end(), first, first + raw.size());
}

float to_float(std::string_view raw) {
    float value = 0;
    check(raw.size() == sizeof value, "onnx: a float of ", raw.size(), " bytes");
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
}

Array parse_array(std::string_view bytes) {
    Array array;
    std::vector<std::int64_t> integers;
    Message message(bytes);
    for (Field field; message.next(field);) {
        switch (field.number) {
            case 1:
                append_integers(field, array.dims);
                break;
            case 2:
                array.type = static_cast<Type>(field.integer);
                break;
            case 4:   // floats
            case 9:   // raw
            case 10:  // doubles
                append_raw(field.bytes, array.bytes);
                break;
            case 5:   // everything up to 32 bits
            case 7:   // 64-bit integers
            case 11:  // unsigned ones
                append_integers(field, integers);
                break;
            case 8:
                array.name = text(field);
                break;
            default:
                break;
        }
    }
    const std::size_t size = type_size(array.type);
    for (const std::int64_t value : integers) {  // little-endian: the low bytes are the first
        append_raw({reinterpret_cast<const char*>(&value), size}, array.bytes);
    }
    std::size_t wanted = size;
    for (const std::int64_t dim : array.dims) {
        check(dim >= 0 && dim < (std::int64_t{1} << 31), "onnx: array '", array.name, "' has a side of ", dim);
        wanted *= static_cast<std::size_t>(dim);
    }
    check(array.bytes.size() == wanted, "onnx: array '", array.name, "' wants ", wanted, " bytes and has ",
          array.bytes.size());
    return array;
}

std::pair<std::string, Attribute> parse_attribute(std::string_view bytes) {
    std::pair<std::string, Attribute> named;
    Attribute& attribute = named.second;
    Message message(bytes);
    for (Field field; message.next(field);) {
        switch (field.number) {
            case 1:
                named.first = text(field);
                break;
            case 2:
                attribute.f = to_float(field.bytes);
                break;
            case 3:
                attribute.i = static_cast<std::int64_t>(field.integer);
                break;
            case 4:
                attribute.s = text(field);
                break;
            case 5:
                attribute.t = parse_array(field.bytes);
                break;
            case 7:
                for (std::size_t at = 0; at < field.bytes.size(); at += 4) {
                    attribute.floats.push_back(to_float(field.bytes.substr(at, 4)));
                }
                break;
            case 8:
                append_integers(field, attribute.ints);
                break;
            case 9:
                attribute.strings.push_back(text(field));
                break;
            default:
                break;  // graphs, sparse arrays, documentation
        }
    }
    return named;
}

Node parse_node(std::string_view bytes) {
    Node node;
    Message message(bytes);
    for (Field field; message.next(field);) {
        switch (field.number) {
            case 1:
                node.inputs.push_back(text(field));
                break;
            case 2:
                node.outputs.push_back(text(field));
                break;
            case 4:
                node.op = text(field);
                break;
            case 5:
                node.attributes.insert(parse_attribute(field.bytes));
                break;
            case 7:
                node.domain = text(field);
                break;
            default:
                break;
        }
    }
    return node;
}

Value parse_value(std::string_view bytes) {
    Value value;
    Message message(bytes);
    for (Field field; message.next(field);) {
        if (field.number == 1) value.name = text(field);
        if (field.number != 2) continue;
        Message type(field.bytes);
        for (Field kind; type.next(kind);) {
            if (kind.number != 1) continue;  // 1 is a tensor; 4, 5, 8, 9 are sequence, map, sparse and optional
            value.is_tensor = true;
            Message tensor(kind.bytes);
            for (Field element; tensor.next(element);) {
                if (element.number == 1) value.type = static_cast<Type>(element.integer);
            }
        }
    }
    return value;
}

void parse_graph(std::string_view bytes, Model& model) {
    Message message(bytes);
    for (Field field; message.next(field);) {
        switch (field.number) {
            case 1:
                model.nodes.push_back(parse_node(field.bytes));
                break;
            case 5:
                model.constants.push_back(parse_array(field.bytes));
                break;
            case 11:
                model.inputs.push_back(parse_value(field.bytes));
                break;
            case 12:
                model.outputs.push_back(parse_value(field.bytes));
                break;
            default:
                break;
        }
    }
}

std::pair<std::string, std::int64_t> parse_opset(std::string_view bytes) {
    std::pair<std::string, std::int64_t> opset;
    Message message(bytes);
    for (Field field; message.next(field);) {
        if (field.number == 1) opset.first = text(field);
        if (field.number == 2) opset.second = static_cast<std::int64_t>(field.integer);
    }
    return opset;
}

std::string read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    check(file.is_open(), "onnx: cannot open ", path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct TypeRow {
    const char* name;
    std::size_t size;
};
constexpr std::array<TypeRow, 17> type_rows = {{{"undefined", 0},
                                                {"f32", 4},
                                                {"u8", 1},
                                                {"int8", 1},
                                                {"uint16", 2},
                                                {"int16", 2},
                                                {"i32", 4},
                                                {"i64", 8},
                                                {"string", 0},
                                                {"bool", 1},
                                                {"f16", 2},
                                                {"f64", 8},
                                                {"uint32", 4},
                                                {"uint64", 8},
                                                {"complex64", 8},
                                                {"complex128", 16},
                                                {"bf16", 2}}};

const TypeRow& row(Type type) {
    const auto at = static_cast<std::size_t>(type);
    return type_rows[at < type_rows.size() ? at : 0];
}

}  // namespace

const char* type_name(Type type) { return row(type).name; }

std::size_t type_size(Type type) { return row(type).size; }

Model read_model(const std::string& path) {
    const std::string bytes = read_bytes(path);
    Model model;
    std::map<std::string, std::int64_t> opsets;
    Message message(bytes);
    for (Field field; message.next(field);) {
        if (field.number == 7) parse_graph(field.bytes, model);
        if (field.number == 8) opsets.insert(parse_opset(field.bytes));
    }
    for (Node& node : model.nodes) {
        const auto found = opsets.find(node.domain);
        check(found != opsets.end(), "onnx: ", path, " states no version of the domain '", node.domain, "'");
        node.opset = found->second;
    }
    // Old files name their constants among the inputs as well.
    const auto is_constant = [&](const Value& value) {
        return std::any_of(model.constants.begin(), model.constants.end(),
                           [&](const Array& array) { return array.name == value.name; });
    };
    model.inputs.erase(std::remove_if(model.inputs.begin(), model.inputs.end(), is_constant), model.inputs.end());
    return model;
}

Array read_array(const std::string& path) {
    const std::string bytes = read_bytes(path);
    return parse_array(bytes);
}

}  // namespace gradus::onnx
