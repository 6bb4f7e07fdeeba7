#include "gradus/nn/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "gradus/core/error.h"
#include "gradus/nn/state.h"

namespace gradus {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t most_elements = std::int64_t(1) << 60;

/// In the reference's order: a file lists later ones first.
constexpr std::pair<const char*, DType> dtypes[] = {{"BOOL", DType::boolean}, {"U8", DType::u8},   {"F16", DType::f16},
                                                    {"BF16", DType::bf16},    {"I32", DType::i32}, {"F32", DType::f32},
                                                    {"F64", DType::f64},      {"I64", DType::i64}};
constexpr const char* unsupported[] = {"F4",          "F6_E2M3",     "F6_E3M2", "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0",
                                       "F8_E5M2FNUZ", "F8_E4M3FNUZ", "I16",     "U16", "U32",     "C64",     "U64"};

std::size_t rank_of(DType dtype) {
    return std::size_t(
        std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto& d) { return d.second == dtype; }) -
        std::begin(dtypes));
}

/// Walks the JSON events and checks each where it comes; nothing but the entries is kept.
class HeaderReader {
  public:
    using number_integer_t = Json::number_integer_t;
    using number_unsigned_t = Json::number_unsigned_t;
    using number_float_t = Json::number_float_t;
    using string_t = Json::string_t;
    using binary_t = Json::binary_t;

    HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

    bool null() { return unexpected("null"); }
    bool boolean(bool) { return unexpected("a boolean"); }
    bool binary(binary_t&) { return unexpected("binary data"); }
    bool number_integer(number_integer_t value) { return number_fault("negative", std::to_string(value)); }
    bool number_float(number_float_t, const string_t& digits) {
        return number_fault("not a whole number below 2^63", digits);
    }
    bool number_unsigned(number_unsigned_t value) {
        if (value > number_unsigned_t(INT64_MAX))
            return number_fault("not a whole number below 2^63", std::to_string(value));
        if (place_ == Place::shape) {
            if (entry_.shape.rank() == max_rank) wrong("the shape has more than the limit of ", max_rank, " sizes");
            entry_.shape.push_back(std::int64_t(value));
            return true;
        }
        if (place_ == Place::offsets) {
            if (offsets_ == 2) wrong("data_offsets has more than two numbers");
            (offsets_ == 0 ? entry_.begin : entry_.end) = value;
            ++offsets_;
            return true;
        }
        return unexpected("a number");
    }
    bool string(string_t& value) {
        if (place_ == Place::metadata) {
            metadata_bytes_ += value.size() + key_.size();
            check(metadata_bytes_ <= safetensors_metadata_limit, "safetensors: ", file_,
                  ": the metadata is larger than the limit of ", safetensors_metadata_limit, " bytes");
            header_.metadata[key_] = std::move(value);
            return true;
        }
        if (place_ != Place::dtype) return unexpected("a text");
        for (const auto& [name, dtype] : dtypes)
            if (value == name) {
                entry_.dtype = dtype;
                place_ = Place::entry;
                return true;
            }
        for (const char* name : unsupported)
            if (value == name)
                wrong("its dtype ", value, " is not supported: BOOL, U8, I32, I64, F16, BF16, F32, F64 are");
        wrong("its dtype ", Quoted{value}, " is unknown");
    }
    bool start_object(std::size_t) {
        if (place_ == Place::top)
            place_ = Place::root;
        else if (place_ == Place::tensor)
            place_ = Place::entry;
        else if (place_ == Place::metadata_value)
            place_ = Place::metadata;
        else
            return unexpected("an object");
        return true;
    }
    bool key(string_t& name) {
        if (place_ == Place::root) {
            check(name.find('\0') == std::string::npos, "safetensors: ", file_,
                  ": a tensor's name holds a NUL: ", Quoted{name});
            check(names_.insert(name).second, "safetensors: ", file_, ": the name ", Quoted{name}, " appears twice");
            place_ = name == safetensors_metadata_key ? Place::metadata_value : Place::tensor;
            entry_ = {};
            entry_.name = std::move(name);
            seen_ = 0;
        } else if (place_ == Place::metadata) {
            check(!header_.metadata.contains(name), "safetensors: ", file_, ": the metadata names ", Quoted{name},
                  " twice");
            key_ = std::move(name);
        } else {
            entry_key(name);
        }
        return true;
    }
    bool end_object() {
        if (place_ == Place::metadata) {
            place_ = Place::root;
        } else if (place_ == Place::entry) {
            for (int field = 0; field < 3; ++field)
                if (!(seen_ >> field & 1)) wrong("its field '", fields[field], "' is missing");
            header_.entries.push_back(std::move(entry_));
            place_ = Place::root;
        } else {
            place_ = Place::done;
        }
        return true;
    }
    bool start_array(std::size_t) {
        if (place_ == Place::shape_value)
            place_ = Place::shape;
        else if (place_ == Place::offsets_value)
            place_ = Place::offsets, offsets_ = 0;
        else
            return unexpected("a list");
        return true;
    }
    bool end_array() {
        if (place_ == Place::offsets && offsets_ != 2) wrong("data_offsets has ", offsets_, " numbers, expected two");
        place_ = Place::entry;
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
        const bool utf8 = std::string_view(error.what()).find("UTF-8") != std::string_view::npos;
        fail("safetensors: ", file_, ": the header is not valid ", utf8 ? "UTF-8" : "JSON", " at byte ", position);
    }

  private:
    enum class Place {
        top,
        root,
        tensor,
        entry,
        dtype,
        shape_value,
        shape,
        offsets_value,
        offsets,
        metadata_value,
        metadata,
        done
    };
    static constexpr const char* fields[] = {"dtype", "shape", "data_offsets"};

    template <class... Parts>
    [[noreturn]] void wrong(const Parts&... parts) const {
        fail("safetensors: ", file_, ": tensor ", Quoted{entry_.name}, ": ", parts...);
    }
    void entry_key(const std::string& name) {
        static constexpr Place places[] = {Place::dtype, Place::shape_value, Place::offsets_value};
        for (int field = 0; field < 3; ++field) {
            if (name != fields[field]) continue;
            if (seen_ >> field & 1) wrong("its field '", name, "' appears twice");
            seen_ |= 1 << field;
            place_ = places[field];
            return;
        }
        wrong("it has an unknown field ", Quoted{name});
    }
    bool number_fault(const char* fault, const std::string& digits) {
        if (place_ == Place::shape) wrong("a size is ", fault, ": ", Quoted{digits});
        if (place_ == Place::offsets) wrong("an offset is ", fault, ": ", Quoted{digits});
        return unexpected("a number");
    }
    [[noreturn]] bool unexpected(const char* what) const {
        switch (place_) {
            case Place::top:
                fail("safetensors: ", file_, ": the header is ", what, ", expected an object");
            case Place::tensor:
                wrong("it is ", what, ", expected an object");
            case Place::dtype:
                wrong("its dtype is ", what, ", expected a text");
            case Place::shape_value:
                wrong("its shape is ", what, ", expected a list");
            case Place::shape:
                wrong("its shape holds ", what, ", expected whole numbers");
            case Place::offsets_value:
                wrong("its data_offsets is ", what, ", expected a list");
            case Place::offsets:
                wrong("its data_offsets holds ", what, ", expected whole numbers");
            case Place::metadata_value:
                fail("safetensors: ", file_, ": the metadata is ", what, ", expected an object");
            case Place::metadata:
                fail("safetensors: ", file_, ": the metadata ", Quoted{key_}, " is ", what, ", expected a text");
            default:
                fail("safetensors: ", file_, ": the header holds ", what, " where none may be");
        }
    }

    SafetensorsHeader& header_;
    const std::string& file_;
    Place place_ = Place::top;
    SafetensorsEntry entry_;
    std::unordered_set<std::string> names_;
    std::string key_;
    std::uint64_t metadata_bytes_ = 0;
    int offsets_ = 0, seen_ = 0;
};

void check_size(const SafetensorsEntry& entry, const std::string& file) {
    std::int64_t whole = 1, count = 1;
    for (const std::int64_t size : entry.shape) {
        const bool fits =
            !__builtin_mul_overflow(whole, std::max<std::int64_t>(size, 1), &whole) && whole <= most_elements;
        check(fits, "safetensors: ", file, ": tensor ", Quoted{entry.name}, ": the shape ", entry.shape,
              " has more than 2^60 elements");
        count = size == 0 ? 0 : count * size;
    }
    const std::uint64_t bytes = std::uint64_t(count) * std::uint64_t(size_of(entry.dtype));
    check(entry.begin <= entry.end, "safetensors: ", file, ": tensor ", Quoted{entry.name}, ": its bytes begin at ",
          entry.begin, " and end before, at ", entry.end);
    check(entry.end - entry.begin == bytes, "safetensors: ", file, ": tensor ", Quoted{entry.name}, ": ", entry.shape,
          " ", entry.dtype, " takes ", bytes, " bytes, the file gives it ", entry.end - entry.begin);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& file) {
    check(!json.empty() && json.front() == '{', "safetensors: ", file, ": the header does not begin with '{'");
    const std::size_t last = json.find_last_not_of(' ');
    check(json[last] == '}', "safetensors: ", file, ": the header is padded with something other than spaces");
    SafetensorsHeader header;
    HeaderReader reader(header, file);
    Json::sax_parse(json.begin(), json.end(), &reader);
    auto& entries = header.entries;
    for (const SafetensorsEntry& entry : entries) check_size(entry, file);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : entries) {
        check(entry.begin == at, "safetensors: ", file, ": tensor ", Quoted{entry.name}, ": its bytes begin at ",
              entry.begin, entry.begin > at ? ", which leaves a hole behind " : ", which overlaps what ends at ", at);
        at = entry.end;
        check(at <= data_bytes, "safetensors: ", file, ": tensor ", Quoted{entry.name}, ": its bytes end at ", at,
              ", the file holds ", data_bytes, ": it was cut short");
    }
    check(at == data_bytes, "safetensors: ", file, ": ", data_bytes - at, " bytes follow the last tensor");
    return header;
}

std::string format_safetensors_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata,
                                      const std::string& file) {
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        const std::size_t rank_a = rank_of(a.dtype), rank_b = rank_of(b.dtype);
        return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
    });
    const auto literal = [&](const std::string& plain) {
        try {
            return Json(plain).dump();
        } catch (const Json::exception&) {
            fail("safetensors: ", file, ": the text ", Quoted{plain}, " is not valid UTF-8: rename it");
        }
    };
    std::string json = "{";
    if (!metadata.empty()) {
        json += text('"', safetensors_metadata_key, "\":{");
        for (std::size_t bytes = 0; const auto& [key, value] : metadata) {
            bytes += key.size() + value.size();
            check(bytes <= safetensors_metadata_limit, "safetensors: ", file,
                  ": the metadata is larger than the limit of ", safetensors_metadata_limit, " bytes");
            json += (json.back() == '{' ? "" : ",") + literal(key) + ":" + literal(value);
        }
        json += "}";
    }
    std::unordered_set<std::string> names;
    std::uint64_t at = 0;
    for (SafetensorsEntry& entry : entries) {
        check(entry.name != safetensors_metadata_key, "safetensors: ", file, ": a tensor cannot be named ",
              Quoted{entry.name}, ": the format reserves that name");
        check(entry.name.find('\0') == std::string::npos, "safetensors: ", file,
              ": a tensor's name holds a NUL: ", Quoted{entry.name});
        check(names.insert(entry.name).second, "safetensors: ", file, ": the name ", Quoted{entry.name},
              " appears twice");
        entry.begin = at;
        entry.end = at += std::uint64_t(entry.shape.product()) * std::uint64_t(size_of(entry.dtype));
        json += (json.size() == 1 ? "" : ",") + literal(entry.name) +
                text(":{\"dtype\":\"", dtypes[rank_of(entry.dtype)].first, "\",\"shape\":[");
        for (int axis = 0; axis < entry.shape.rank(); ++axis)
            json += (axis ? "," : "") + std::to_string(entry.shape[axis]);
        json += text("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
    }
    json += "}";
    json.append((8 - json.size() % 8) % 8, ' ');
    check(json.size() <= safetensors_header_limit, "safetensors: ", file, ": the header would take ", json.size(),
          " bytes, the limit is ", safetensors_header_limit);
    return json;
}

}  // namespace gradus
