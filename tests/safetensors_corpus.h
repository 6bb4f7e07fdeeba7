// Hostile safetensors files, each with the words its refusal must hold.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace gradus::tests::safetensors {

inline std::string little_endian(std::uint64_t n) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &n, 8);
    return bytes;
}
inline std::string file_of(const std::string& json, const std::string& data = "") {
    return little_endian(json.size()) + json + data;
}
struct Bad {
    std::string what, bytes, error;
};

inline std::string entry(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }
inline const std::string dtype = "\"dtype\":\"F32\"", shape = "\"shape\":[1]", offsets = "\"data_offsets\":[0,4]";

/// Files that must be refused, with the words that tell why.
inline std::vector<Bad> corpus() {
    const std::string four(4, 'x'), eight(8, 'x'), good = entry(dtype + "," + shape + "," + offsets);
    const auto shaped = [&](const std::string& sizes, const std::string& range = "[0,4]") {
        return entry(dtype + ",\"shape\":" + sizes + ",\"data_offsets\":" + range);
    };
    const auto placed = [&](const std::string& range) { return shaped("[1]", range); };
    const auto two = [&](const std::string& a, const std::string& b) {
        return "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + a +
               "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + b + "}}";
    };
    const std::string meta = "{\"__metadata__\":";
    std::vector<Bad> bad = {
        {"empty file", "", "0 bytes are too few"},
        {"seven bytes", std::string(7, '\1'), "7 bytes are too few"},
        {"header length 0", little_endian(0), "header of 0 bytes is too short"},
        {"header length 1", little_endian(1) + "{", "header of 1 bytes is too short"},
        {"header length 2^31", little_endian(std::uint64_t(1) << 31) + "{}", "exceeds the limit of 100000000"},
        {"header length 2^63", little_endian(std::uint64_t(1) << 63) + "{}", "exceeds the limit"},
        {"header length 2^64 - 1", little_endian(~std::uint64_t(0)) + "{}", "exceeds the limit"},
        {"header length 2^64 - 8 wraps", little_endian(~std::uint64_t(7)) + "{}", "exceeds the limit"},
        {"header length file size - 7", little_endian(3) + "{}", "header takes 3 bytes, the file holds 2"},
        {"header length 99 million of nothing", little_endian(99'000'000) + "{}", "header takes 99000000 bytes"},
        {"list header", file_of("[]"), "does not begin with '{'"},
        {"leading space", file_of(" {}"), "does not begin with '{'"},
        {"byte order mark", file_of("\xef\xbb\xbf{}"), "does not begin with '{'"},
        {"text header", file_of("\"a\" }"), "does not begin with '{'"},
        {"padded with newline", file_of("{}\n"), "padded with something other"},
        {"padded with NUL", file_of(std::string("{}\0", 3)), "padded with something other"},
        {"padded with tab", file_of("{}\t \t"), "padded with something other"},
        {"two objects", file_of("{}{}"), "not valid JSON"},
        {"cut header", file_of("{\"t\":{}"), "its field 'dtype' is missing"},
        {"unclosed", file_of("{\"t\":{\"shape\":[1]}"), "its field 'dtype' is missing"},
        {"trailing comma", file_of("{\"t\":1,}"), "it is a number, expected an object"},
        {"no quotes", file_of("{t:{}}"), "not valid JSON"},
        {"comment", file_of("{/*c*/}"), "not valid JSON"},
        {"bad UTF-8", file_of("{\"\xff\":{}}"), "not valid UTF-8"},
        {"overlong UTF-8", file_of("{\"\xc0\xaf\":{}}"), "not valid UTF-8"},
        {"lone surrogate", file_of("{\"\\ud800\":{}}"), "not valid JSON"},
        {"raw control character in a name", file_of("{\"a\nb\":{}}"), "not valid JSON"},
        {"NUL in a name", file_of("{\"a\\u0000b\":{}}"), "holds a NUL: 'a\\x00b'"},
        {"deep lists", file_of("{\"t\":" + std::string(100'000, '[') + "}"), "it is a list, expected an object"},
        {"deep objects", file_of([] {
             std::string s;
             for (int i = 0; i < 100'000; ++i) s += "{\"t\":";
             return s + "}";
         }()),
         "it has an unknown field 't'"},
        {"deep shape", file_of(shaped(std::string(100'000, '['))), "its shape holds a list"},
        {"entry is null", file_of("{\"t\":null}"), "it is null, expected an object"},
        {"entry is a text", file_of("{\"t\":\"F32\"}"), "it is a text, expected an object"},
        {"no dtype", file_of(entry(shape + "," + offsets), four), "its field 'dtype' is missing"},
        {"no shape", file_of(entry(dtype + "," + offsets), four), "its field 'shape' is missing"},
        {"no offsets", file_of(entry(dtype + "," + shape), four), "its field 'data_offsets' is missing"},
        {"extra field", file_of(entry(dtype + "," + shape + "," + offsets + ",\"strides\":[1]"), four),
         "unknown field 'strides'"},
        {"dtype twice", file_of(entry(dtype + "," + dtype + "," + shape + "," + offsets), four),
         "'dtype' appears twice"},
        {"shape twice", file_of(entry(dtype + "," + shape + "," + shape + "," + offsets), four),
         "'shape' appears twice"},
        {"offsets twice", file_of(entry(dtype + "," + shape + "," + offsets + "," + offsets), four),
         "'data_offsets' appears twice"},
        {"name twice", file_of(good.substr(0, good.size() - 1) + "," + good.substr(1), four),
         "the name 't' appears twice"},
        {"name twice by escape", file_of(good.substr(0, good.size() - 1) + ",\"\\u0074\":{}}", four),
         "the name 't' appears twice"},
        {"unknown dtype", file_of(entry("\"dtype\":\"F31\"," + shape + "," + offsets), four), "dtype 'F31' is unknown"},
        {"lower-case dtype", file_of(entry("\"dtype\":\"f32\"," + shape + "," + offsets), four),
         "dtype 'f32' is unknown"},
        {"dtype of another library", file_of(entry("\"dtype\":\"F8_E4M3\"," + shape + "," + offsets), four),
         "F8_E4M3 is not supported"},
        {"sub-byte dtype", file_of(entry("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), "x"),
         "F4 is not supported"},
        {"dtype is a number", file_of(entry("\"dtype\":32," + shape + "," + offsets), four), "dtype is a number"},
        {"shape is a number", file_of(shaped("1"), four), "its shape is a number, expected a list"},
        {"shape holds a text", file_of(shaped("[\"1\"]"), four), "its shape holds a text"},
        {"negative size", file_of(shaped("[-1]"), four), "a size is negative: '-1'"},
        {"two negative sizes", file_of(shaped("[-1,-1]"), four), "a size is negative"},
        {"fractional size", file_of(shaped("[1.0]"), four), "a size is not a whole number below 2^63: '1.0'"},
        {"exponent size", file_of(shaped("[1e0]"), four), "a size is not a whole number"},
        {"size of 2^63", file_of(shaped("[9223372036854775808]"), four), "a size is not a whole number below 2^63"},
        {"size of 2^64", file_of(shaped("[18446744073709551616]"), four), "a size is not a whole number below 2^63"},
        {"rank 9", file_of(shaped("[1,1,1,1,1,1,1,1,1]"), four), "more than the limit of 8 sizes"},
        {"rank 10^6",
         file_of(shaped("[1" +
                        [] {
                            std::string s;
                            for (int i = 0; i < 1'000'000; ++i) s += ",1";
                            return s;
                        }() +
                        "]"),
                 four),
         "more than the limit of 8 sizes"},
        {"offset is null", file_of(placed("[0,null]"), four), "data_offsets holds null"},
        {"offsets is an object", file_of(placed("{}"), four), "data_offsets is an object"},
        {"one offset", file_of(placed("[0]"), four), "data_offsets has 1 numbers"},
        {"no offset", file_of(placed("[]"), four), "data_offsets has 0 numbers"},
        {"three offsets", file_of(placed("[0,4,4]"), four), "more than two numbers"},
        {"negative offset", file_of(placed("[-4,0]"), four), "an offset is negative: '-4'"},
        {"negative zero", file_of(placed("[-0,4]"), four), "an offset is negative"},
        {"fractional offset", file_of(placed("[0,4.0]"), four), "an offset is not a whole number below 2^63: '4.0'"},
        {"exponent offset", file_of(placed("[0,1e3]"), four), "an offset is not a whole number below 2^63: '1e3'"},
        {"offset beyond 2^63", file_of(placed("[0,9223372036854775812]"), four), "an offset is not a whole number"},
        {"offset beyond 2^64", file_of(placed("[0,18446744073709551620]"), four), "an offset is not a whole number"},
        {"inverted offsets", file_of(placed("[4,0]"), four), "begin at 4 and end before, at 0"},
        {"too few bytes for the shape", file_of(placed("[0,2]"), "xx"), "takes 4 bytes, the file gives it 2"},
        {"too many bytes for the shape", file_of(placed("[0,8]"), eight), "takes 4 bytes, the file gives it 8"},
        {"bytes for no elements", file_of(shaped("[0]"), four), "takes 0 bytes, the file gives it 4"},
        {"hole at the front", file_of(placed("[4,8]"), eight), "begin at 4, which leaves a hole behind 0"},
        {"hole in the middle", file_of(two("[0,4]", "[8,12]"), std::string(12, 'x')),
         "'b': its bytes begin at 8, which leaves a hole behind 4"},
        {"overlap", file_of(two("[0,4]", "[2,6]"), std::string(6, 'x')),
         "'b': its bytes begin at 2, which overlaps what ends at 4"},
        {"same bytes twice", file_of(two("[0,4]", "[0,4]"), four),
         "'b': its bytes begin at 0, which overlaps what ends at 4"},
        {"empty tensor inside another",
         file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"e\":{\"dtype\":\"F32\",\"shape\":["
                 "0],\"data_offsets\":[2,2]}}",
                 four),
         "'e': its bytes begin at 2, which overlaps"},
        {"past the end", file_of(two("[0,4]", "[4,8]"), four), "'b': its bytes end at 8, the file holds 4"},
        {"one trailing byte", file_of(good, four + "y"), "1 bytes follow the last tensor"},
        {"bytes behind no tensors", file_of("{}", eight), "8 bytes follow the last tensor"},
        {"metadata is a list", file_of(meta + "[]}"), "the metadata is a list"},
        {"metadata is null", file_of(meta + "null}"), "the metadata is null"},
        {"metadata holds a number", file_of(meta + "{\"step\":1}}"),
         "the metadata 'step' is a number, expected a text"},
        {"metadata holds an object", file_of(meta + "{\"a\":{}}}"), "the metadata 'a' is an object"},
        {"metadata names twice", file_of(meta + "{\"a\":\"1\",\"a\":\"2\"}}"), "the metadata names 'a' twice"},
        {"metadata twice", file_of(meta + "{},\"__metadata__\":{}}"), "the name '__metadata__' appears twice"},
        {"metadata too large", file_of(meta + "{\"a\":\"" + std::string(17u << 20, 'm') + "\"}}"),
         "the metadata is larger than the limit"},
        {"a bool that is 2", file_of("{\"t\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", "\1\2"),
         "element 1 of a bool tensor is 2"},
    };
    return bad;
}

}  // namespace gradus::tests::safetensors
