#include "gradus/nn/state_file.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gradus/nn/atomic_file.h"

namespace gradus {
namespace {

using Json = nlohmann::json;

constexpr const char* format = "gradus checkpoint";
constexpr std::int64_t format_version = 1;
constexpr std::uintmax_t size_limit = std::uintmax_t(64) << 20;

/// Keys in the map's order, so that equal values give equal text, and reading a text back gives that text again.
Json to_json(const Values& values) {
    Json object = Json::object();
    for (const auto& [name, value] : values)
        std::visit([&, &key = name](const auto& held) { object[key] = held; }, value);
    return object;
}

std::int64_t checksum_of(const Values& values) {
    const std::string dump = to_json(values).dump();
    return crc32c(dump.data(), dump.size());
}

/// Two levels: the file's own fields, and "values".
class StateReader {
  public:
    using number_integer_t = Json::number_integer_t;
    using number_unsigned_t = Json::number_unsigned_t;
    using number_float_t = Json::number_float_t;
    using string_t = Json::string_t;
    using binary_t = Json::binary_t;

    explicit StateReader(const std::string& file) : file_(file) {}
    Values top, values;

    bool null() { return refuse("null"); }
    bool boolean(bool) { return refuse("a boolean"); }
    bool binary(binary_t&) { return refuse("binary data"); }
    bool start_array(std::size_t) { return refuse("a list"); }
    bool end_array() { return true; }
    bool number_integer(number_integer_t value) { return put(std::int64_t(value)); }
    bool number_unsigned(number_unsigned_t value) {
        if (value > number_unsigned_t(INT64_MAX)) return refuse("an integer beyond 63 bits");
        return put(std::int64_t(value));
    }
    bool number_float(number_float_t value, const string_t&) { return put(double(value)); }
    bool string(string_t& value) { return put(std::move(value)); }
    bool start_object(std::size_t) {
        if (depth_ > 1 || (depth_ == 1 && key_ != "values")) return refuse("an object");
        ++depth_;
        return true;
    }
    bool end_object() {
        --depth_;
        return true;
    }
    bool key(string_t& name) {
        key_ = std::move(name);
        check(!(depth_ == 1 ? top : values).contains(key_), "checkpoint: ", file_, " names ", Quoted{key_}, " twice");
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
        fail("checkpoint: ", file_, " is not valid JSON at byte ", position);
    }

  private:
    bool put(Value value) {
        if (depth_ == 0) return refuse("a single value");
        (depth_ == 1 ? top : values)[key_] = std::move(value);
        return true;
    }
    [[noreturn]] bool refuse(const char* what) const {
        fail("checkpoint: ", file_, ": ", Quoted{key_}, " is ", what, ", expected an integer, a number or a text");
    }
    const std::string& file_;
    std::string key_;
    int depth_ = 0;
};

}  // namespace

void save_state_file(const std::filesystem::path& path, const StateFile& state) {
    for (const auto& [name, value] : state.values)
        if (const double* number = std::get_if<double>(&value))
            check(std::isfinite(*number), "checkpoint: the value ", Quoted{name}, " is ", *number,
                  ": JSON cannot hold it");
    std::string text;
    try {
        Json file;
        file["format"] = format;
        file["format_version"] = format_version;
        file["model_checksum"] = state.model_checksum;
        file["optimizer_checksum"] = state.optimizer_checksum;
        file["values"] = to_json(state.values);
        file["values_checksum"] = checksum_of(state.values);
        text = file.dump(2) + "\n";
    } catch (const Json::exception& error) {
        fail("checkpoint: a value is not valid UTF-8: ", error.what());
    }
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
}

StateFile load_state_file(const std::filesystem::path& path) {
    const std::string name = path.string();
    std::error_code error;
    const std::uintmax_t size =
        std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path, error) : 0;
    check(!error && size > 0, "checkpoint: ", name, " is missing or empty");
    check(size <= size_limit, "checkpoint: ", name, " has ", size, " bytes, the limit is ", size_limit);
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    StateReader reader(name);
    Json::sax_parse(text, &reader);
    const auto found = reader.top.find("format");
    check(found != reader.top.end() && found->second == Value(format), "checkpoint: ", name,
          " was not written by this library: its format is not '", format, "'");
    const std::int64_t version = integer_at(reader.top, "format_version");
    check(version == format_version, "checkpoint: ", name, " has the format version ", version, ", this library reads ",
          format_version);
    check(integer_at(reader.top, "values_checksum") == checksum_of(reader.values), "checkpoint: ", name,
          " was changed after it was written: its checksum differs");
    return {std::move(reader.values), std::uint32_t(integer_at(reader.top, "model_checksum")),
            std::uint32_t(integer_at(reader.top, "optimizer_checksum"))};
}

}  // namespace gradus
