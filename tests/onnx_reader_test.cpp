// The reader and the comparison behind the ONNX data, on files of a few bytes written here.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gradus/tests/onnx_compare.h"
#include "gradus/tests/onnx_reader.h"
#include "gradus/tests/support.h"

namespace gradus::onnx {
namespace {

using tests::contains;
using tests::error_of;

// A file that is gone at the end of the test.
class File {
  public:
    explicit File(const std::string& bytes)
        : path_(std::filesystem::temp_directory_path() / ("gradus_onnx_" + std::to_string(++number) + ".pb")) {
        std::ofstream(path_, std::ios::binary) << bytes;
    }
    ~File() { std::filesystem::remove(path_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    std::string path() const { return path_.string(); }

  private:
    static inline int number = 0;
    std::filesystem::path path_;
};

std::string field(int number, const std::string& bytes) {
    std::string length;
    for (std::size_t left = bytes.size(); left > 0 || length.empty(); left >>= 7) {
        length += char((left & 127) | (left > 127 ? 128 : 0));
    }
    return char(number << 3 | 2) + length + bytes;
}
std::string field(int number, int value) { return {char(number << 3), char(value)}; }

std::string floats(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

Array array_of(const std::string& bytes) { return read_array(File(bytes).path()); }

Array array_of(const std::vector<float>& values) {
    return array_of(field(1, int(values.size())) + field(2, 1) + field(9, floats(values)));
}

std::vector<double> values(const Array& array) {
    std::vector<double> all;
    for (std::size_t at = 0; at < count(array); ++at) all.push_back(value_at(array, at));
    return all;
}

}  // namespace

TEST_CASE("ONNX reader: arrays in raw and in typed fields", "[onnx]") {
    // dims (2, 1) packed, f32, name, raw bytes
    const Array raw =
        array_of(field(1, std::string("\x02\x01")) + field(2, 1) + field(8, "w") + field(9, floats({1.5F, -2})));
    CHECK(raw.dims == std::vector<std::int64_t>{2, 1});
    CHECK(raw.name == "w");
    CHECK(values(raw) == std::vector<double>{1.5, -2});
    CHECK(values(array_of(field(1, 2) + field(2, 1) + field(4, floats({3, 4})))) == std::vector<double>{3, 4});
    // i64 in field 7: 300 is the varint ac 02, -1 is nine times ff and 01
    const std::string minus_one = std::string(9, '\xff') + "\x01";
    const Array integers = array_of(field(1, 2) + field(2, 7) + field(7, "\xac\x02" + minus_one));
    CHECK(values(integers) == std::vector<double>{300, -1});
    // i32 in field 5, one number a field; 0-d
    CHECK(values(array_of(field(2, 6) + field(5, 7))) == std::vector<double>{7});
    // f16 and bf16 travel in field 5 as their bits: 1.0 is 3c00 and 3f80
    CHECK(values(array_of(field(2, 10) + field(5, std::string("\x80\x78")))) == std::vector<double>{1});
    CHECK(values(array_of(field(2, 16) + field(5, std::string("\x80\x7f")))) == std::vector<double>{1});
}

TEST_CASE("ONNX reader: a graph with node, attributes, constant and declared values", "[onnx]") {
    const std::string axis = field(1, "axis") + std::string("\x18") + std::string(9, '\xff') + "\x01";
    const std::string alpha = field(1, "alpha") + "\x15" + floats({0.25F});
    const std::string pads = field(1, "pads") + field(8, 1) + field(8, 2);
    const std::string node = field(1, "x") + field(1, "") + field(2, "y") + field(4, "Softmax") + field(5, axis) +
                             field(5, alpha) + field(5, pads);
    const std::string tensor_type = field(2, field(1, field(1, 1)));    // a tensor of f32
    const std::string sequence_type = field(2, field(4, field(1, 1)));  // a sequence
    const std::string graph = field(1, node) + field(5, field(2, 1) + field(8, "c") + field(9, floats({1}))) +
                              field(11, field(1, "x") + tensor_type) + field(11, field(1, "c") + tensor_type) +
                              field(12, field(1, "y") + sequence_type);
    const File model_file(field(7, graph) + field(8, field(1, "") + field(2, 13)));
    const Model model = read_model(model_file.path());
    REQUIRE(model.nodes.size() == 1);
    const Node& softmax = model.nodes[0];
    CHECK(softmax.op == "Softmax");
    CHECK(softmax.opset == 13);
    CHECK(softmax.inputs == std::vector<std::string>{"x", ""});
    CHECK(softmax.attributes.at("axis").i == -1);
    CHECK(softmax.attributes.at("alpha").f == 0.25F);
    CHECK(softmax.attributes.at("pads").ints == std::vector<std::int64_t>{1, 2});
    REQUIRE(model.constants.size() == 1);
    REQUIRE(model.inputs.size() == 1);  // the constant is not fed
    CHECK(model.inputs[0].type == Type::float32);
    CHECK(!model.outputs[0].is_tensor);
}

TEST_CASE("ONNX reader: damaged files are errors", "[onnx]") {
    const std::string good = field(1, 2) + field(2, 1) + field(9, floats({1, 2}));
    for (std::size_t length = 1; length < good.size(); ++length) {
        if (length == 2) continue;  // only dims: an array of no type and no bytes
        INFO(length);
        CHECK_THROWS_AS(array_of(good.substr(0, length)), Error);
    }
    CHECK(contains(error_of([] { array_of("\x0b"); }), "protobuf: field 1 has the unknown wire kind 3"));
    CHECK(contains(error_of([] { array_of(field(1, 3) + field(2, 1) + field(9, floats({1}))); }),
                   "wants 12 bytes and has 4"));
    CHECK(contains(error_of([] { array_of("\x08" + std::string(10, '\xff')); }), "a number of more than ten bytes"));
    CHECK(contains(error_of([] { read_model("/nowhere/model.onnx"); }), "onnx: cannot open /nowhere/model.onnx"));
}

TEST_CASE("ONNX comparison: differences are found", "[onnx]") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Array expected = array_of(std::vector<float>{1, nan, infinity, 0});
    CHECK(difference(array_of(std::vector<float>{1.0009F, nan, infinity, 9e-8F}), expected) == "");
    CHECK(difference(array_of(std::vector<float>{1.5F, nan, infinity, 0}), expected) ==
          "element 0 is 1.5, expected 1 (1 of 4 are wrong)");
    CHECK(difference(array_of(std::vector<float>{1.002F, nan, infinity, 0}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{1, 0, infinity, 0}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{nan, nan, infinity, 0}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{1, nan, -infinity, 0}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{1, nan, 1e30F, 0}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{1, nan, infinity, 2e-7F}), expected) != "");
    CHECK(difference(array_of(std::vector<float>{1, nan, infinity}), expected) == "shape (3,), expected (4,)");
    const Array integer = array_of(field(2, 6) + field(5, 7));
    CHECK(difference(integer, array_of(field(2, 7) + field(7, 7))) == "type i32, expected i64");
    CHECK(difference(integer, array_of(field(2, 6) + field(5, 8))) == "element 0 is 7, expected 8 (1 of 1 are wrong)");
}

TEST_CASE("ONNX comparison: dropout is judged by its law", "[onnx]") {
    const std::vector<float> x(64, 1.0F);
    std::vector<float> y(64, 0.0F);
    CHECK(dropout_difference(array_of(y), array_of(x), 0.5) != "");  // nothing kept
    for (std::size_t i = 0; i < 32; ++i) y[2 * i] = 2;
    CHECK(dropout_difference(array_of(y), array_of(x), 0.5) == "");
    y[1] = 1;  // not scaled
    CHECK(dropout_difference(array_of(y), array_of(x), 0.5) != "");
}

}  // namespace gradus::onnx
