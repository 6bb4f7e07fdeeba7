// The safetensors reader against hostile files, and the writer against the format.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "gradus/autograd/ops.h"
#include "gradus/nn/atomic_file.h"
#include "gradus/nn/safetensors.h"
#include "gradus/tests/safetensors_corpus.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;
using namespace gradus::tests::safetensors;
namespace fs = std::filesystem;

namespace {

/// A folder of its own for each test, gone at the end.
struct Folder {
    fs::path path;
    Folder() {
        std::string name = (fs::temp_directory_path() / "gradus-safetensors-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Folder() { fs::remove_all(path); }
};

void write_bytes(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
}
std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

NamedTensors three_tensors() {
    return {{"a.weight", Tensor::from({1.0f, -2.5f, 3.25f, 0.0f}, {2, 2}, Device{})},
            {"a.bias", Tensor::from({7, -8}, Device{})},
            {"flags", Tensor::from({true, false, true}, Device{})}};
}

const Tensor& find(const Safetensors& file, const std::string& name) {
    for (const auto& [known, tensor] : file.tensors)
        if (known == name) return tensor;
    FAIL("no tensor named " << name);
    return file.tensors.front().second;
}

}  // namespace

TEST_CASE("BB-137 malformed files are refused, each with its reason", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "bad.safetensors";
    const auto bad = corpus();
    CHECK(bad.size() >= 60);
    for (const Bad& file : bad) {
        INFO(file.what);
        write_bytes(path, file.bytes);
        const auto before = pool_statistics().allocations;
        const std::string error = error_of([&] { load_safetensors(path); });
        CHECK(contains(error, file.error));
        CHECK(contains(error, "bad.safetensors"));
        CHECK(error.size() < 600);
        if (file.what != "a bool that is 2") CHECK(pool_statistics().allocations == before);
    }
}

TEST_CASE("BB-132 declared shape larger than the bytes behind it", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "large.safetensors";
    write_bytes(path, file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", "xxxx"));
    const auto before = pool_statistics();
    const std::string error = error_of([&] { load_safetensors(path); });
    CHECK(contains(error, "tensor 'w': (1000, 1000) f32 takes 4000000 bytes, the file gives it 4"));
    CHECK(pool_statistics().allocations == before.allocations);
}

TEST_CASE("BB-134 shape product that wraps", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "wraps.safetensors";
    // The third is refused by the documented limit: its sizes above zero multiply to 2^64.
    for (const char* sizes : {"[4611686018427387904]", "[4294967296,4294967296]", "[8589934592,2147483648,0]",
                              "[0,8589934592,2147483648]", "[9223372036854775807,9223372036854775807,4]"}) {
        INFO(sizes);
        write_bytes(path, file_of(text("{\"w\":{\"dtype\":\"F32\",\"shape\":", sizes, ",\"data_offsets\":[0,0]}}")));
        CHECK(contains(error_of([&] { load_safetensors(path); }), "has more than 2^60 elements"));
    }
    write_bytes(path, file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[-1,4],\"data_offsets\":[0,0]}}"));
    CHECK(contains(error_of([&] { load_safetensors(path); }), "a size is negative"));
    write_bytes(path, file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[1048576,0,1048576],\"data_offsets\":[0,0]}}"));
    CHECK(load_safetensors(path).tensors[0].second.shape() == Shape{1048576, 0, 1048576});
}

TEST_CASE("BB-135 hostile header length", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "length.safetensors";
    for (std::size_t size = 0; size < 10; ++size) {
        write_bytes(path, std::string(size, '\x7f'));
        CHECK_THROWS_AS(load_safetensors(path), Error);
        write_bytes(path, std::string(size, '\0'));
        CHECK_THROWS_AS(load_safetensors(path), Error);
    }
    struct rusage before {
    }, after{};
    ::getrusage(RUSAGE_SELF, &before);
    for (const std::uint64_t length : {std::uint64_t(99'999'999), std::uint64_t(1) << 31, ~std::uint64_t(0)}) {
        write_bytes(path, little_endian(length) + "{}");
        CHECK_THROWS_AS(load_safetensors(path), Error);
    }
    ::getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 50'000);  // KiB: the stated 97 656 were not taken
}

TEST_CASE("BB-136 truncated or overlong file", "[checkpoint]") {
    const Folder folder;
    const fs::path whole = folder.path / "whole.safetensors", cut = folder.path / "cut.safetensors";
    save_safetensors(whole, three_tensors());
    const std::string bytes = bytes_of(whole);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        INFO(size << " of " << bytes.size() << " bytes");
        write_bytes(cut, bytes.substr(0, size));
        CHECK_THROWS_AS(load_safetensors(cut), Error);
        CHECK_THROWS_AS(load_safetensors_header(cut), Error);
    }
    for (const std::size_t more : {1, 4096}) {
        write_bytes(cut, bytes + std::string(more, '\0'));
        CHECK(contains(error_of([&] { load_safetensors(cut); }), text(more, " bytes follow the last tensor")));
        CHECK(contains(error_of([&] { load_safetensors_header(cut); }), text(more, " bytes follow the last tensor")));
    }
}

TEST_CASE("BB-138 names and corner tensors", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "names.safetensors";
    const Tensor one = Tensor::from({1.0f}, Device{});
    CHECK(contains(error_of([&] { save_safetensors(path, {{"a", one}, {"a", one}}); }), "the name 'a' appears twice"));
    CHECK(contains(error_of([&] {
                       save_safetensors(path, {{"__metadata__", one}});
                   }),
                   "cannot be named '__metadata__'"));
    CHECK(contains(error_of([&] { save_safetensors(path, {{std::string("a\0b", 3), one}}); }), "holds a NUL"));
    CHECK(contains(error_of([&] { save_safetensors(path, {{"\xff", one}}); }), "is not valid UTF-8"));
    CHECK(contains(error_of([&] { save_safetensors(path, {{"x", Tensor()}}); }), "'x' is undefined"));
    CHECK_FALSE(fs::exists(path));

    write_bytes(path, file_of("{\"__metadata__\":{}}"));
    CHECK(load_safetensors(path).metadata.empty());
    save_safetensors(path, {}, {{"key", "value \"quoted\"\n"}});
    CHECK(load_safetensors(path).metadata == Metadata{{"key", "value \"quoted\"\n"}});
    save_safetensors(path, {});
    CHECK(load_safetensors(path).tensors.empty());
    CHECK(bytes_of(path) == file_of("{}      "));

    NamedTensors odd;
    for (const char* name :
         {"quote\"", "back\\slash", "new\nline", "../../etc/passwd", "/absolute", "重み", "\x7f", "", " "})
        odd.emplace_back(name, Tensor::scalar(double(odd.size()), DType::f32, Device{}));
    odd.emplace_back("empty", Tensor::empty({0, 3}, DType::i64, Device{}));
    save_safetensors(path, odd);
    const Safetensors loaded = load_safetensors(path);
    REQUIRE(loaded.tensors.size() == odd.size());
    for (const auto& [name, tensor] : odd) {
        CHECK(find(loaded, name).shape() == tensor.shape());
        CHECK(find(loaded, name).to_vector<float>() == tensor.to_vector<float>());
    }

    NamedTensors many;
    for (int i = 0; i < 10'000; ++i) many.emplace_back(text("layer.", i), Tensor::scalar(i, DType::f32, Device{}));
    save_safetensors(path, many);
    const Safetensors back = load_safetensors(path);
    REQUIRE(back.tensors.size() == many.size());
    for (const auto& [name, tensor] : back.tensors) CHECK(name == text("layer.", tensor.item<std::int64_t>()));
}

TEST_CASE("BB-139 saving views", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "views.safetensors";
    const Tensor a = Tensor::from({0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f}, {2, 3}, Device{});
    const NamedTensors views = {{"transposed", transpose(a)},
                                {"columns", slice(a, 1, 1, 3)},
                                {"row", slice(a, 0, 0, 1)},
                                {"base", a},
                                {"expanded", expand(slice(a, 0, 1, 2), {4, 3})}};
    save_safetensors(path, views);
    const Safetensors loaded = load_safetensors(path);
    CHECK(find(loaded, "transposed").shape() == Shape{3, 2});
    CHECK(find(loaded, "transposed").to_vector<float>() == std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK(find(loaded, "columns").to_vector<float>() == std::vector<float>{1, 2, 4, 5});
    CHECK(find(loaded, "row").to_vector<float>() == std::vector<float>{0, 1, 2});
    CHECK(find(loaded, "base").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(find(loaded, "expanded").to_vector<float>() == std::vector<float>{3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5});
}

TEST_CASE("the writer's bytes are the format's", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "bytes.safetensors";
    NamedTensors state = three_tensors();
    const std::uint32_t checksum = save_safetensors(path, state, {{"b", "2"}, {"a", "1"}});
    // Wide dtypes first (F32 before I32, as the reference orders them), then by name; 1.0f = 00 00 80 3f and so on.
    std::string json =
        "{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\"},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"a.bias\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[16,24]},"
        "\"flags\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[24,27]}}";
    while (json.size() % 8 != 0) json += ' ';
    const std::string data("\0\0\x80\x3f\0\0\x20\xc0\0\0\x50\x40\0\0\0\0\x07\0\0\0\xf8\xff\xff\xff\1\0\1", 27);
    CHECK(bytes_of(path) == file_of(json, data));
    CHECK(file_checksum(path) == checksum);
    std::swap(state[0], state[2]);
    save_safetensors(path, state, {{"b", "2"}, {"a", "1"}});
    CHECK(file_checksum(path) == checksum);
    CHECK(load_safetensors(path).checksum == checksum);
}

TEST_CASE("every dtype comes back bit for bit", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "dtypes.safetensors";
    const float inf = std::numeric_limits<float>::infinity();
    const Tensor values = Tensor::from({0.0f, -0.0f, 1.5f, -2.25f, inf, 100.0f}, {2, 3}, Device{});
    NamedTensors state;
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
        state.emplace_back(to_string(type), cast(values, type));
    state.emplace_back("i64", Tensor::from({INT64_MIN, std::int64_t(-1), INT64_MAX}, Device{}));
    state.emplace_back("i32", Tensor::from({INT32_MIN, 0, INT32_MAX}, Device{}));
    state.emplace_back("u8", Tensor::from({std::uint8_t(0), std::uint8_t(255)}, Device{}));
    state.emplace_back("bool", Tensor::from({true, false}, Device{}));
    save_safetensors(path, state);
    const Safetensors loaded = load_safetensors(path);
    std::string order;  // as the reference sorts them: 8 bytes, 4, 2, 1
    for (const auto& [name, tensor] : loaded.tensors) order += name + " ";
    CHECK(order == "i64 f64 f32 i32 bf16 f16 u8 bool ");
    for (const auto& [name, tensor] : state) {
        const Tensor& back = find(loaded, name);
        REQUIRE(back.dtype() == tensor.dtype());
        CHECK(std::memcmp(back.address(), tensor.address(), std::size_t(tensor.numel() * size_of(tensor.dtype()))) ==
              0);
    }
    CHECK(contains(error_of([&] { load_safetensors(path, {Device{}, true}); }), "element 4 is inf"));
}

TEST_CASE("crc32c of the check string and of pieces", "[checkpoint]") {
    CHECK(crc32c("123456789", 9) == 0xE3069283);
    CHECK(crc32c("", 0) == 0);
    CHECK(crc32c("6789", 4, crc32c("12345", 5)) == 0xE3069283);
    const std::string zeros(32, '\0');
    CHECK(crc32c(zeros.data(), 32) == 0x8A9136AA);  // RFC 3720, B.4
}

TEST_CASE("saving keeps the file's mode and leaves nothing beside it", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "mode.safetensors";
    save_safetensors(path, three_tensors());
    for (const mode_t mode : {0644, 0600, 0664}) {
        ::chmod(path.c_str(), mode);
        save_safetensors(path, three_tensors());
        struct stat facts {};
        ::stat(path.c_str(), &facts);
        CHECK((facts.st_mode & 07777) == mode);
    }
    fs::create_symlink(path, folder.path / "link.safetensors");
    save_safetensors(folder.path / "link.safetensors", {});
    CHECK(fs::is_symlink(folder.path / "link.safetensors"));
    CHECK(load_safetensors(path).tensors.empty());
    CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 2);
}

TEST_CASE("a failing write leaves the old file and no other", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "full.safetensors";
    save_safetensors(path, three_tensors());
    const std::string before = bytes_of(path);
    const Tensor large = Tensor::from(std::vector<float>(5000, 1.0f), Device{});
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const struct rlimit limit { 4096, 4096 };  // a full disk: writes stop after 4096 bytes
        ::setrlimit(RLIMIT_FSIZE, &limit);
        ::signal(SIGXFSZ, SIG_IGN);
        try {
            save_safetensors(path, {{"large", large}});
        } catch (const Error& error) {
            ::_exit(contains(error.what(), "cannot write") && contains(error.what(), "full.safetensors") ? 3 : 4);
        } catch (...) {
            ::_exit(5);
        }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 3);
    CHECK(bytes_of(path) == before);
    CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
}

TEST_CASE("a place that cannot be written or read is one clear error", "[checkpoint]") {
    const Folder folder;
    CHECK(contains(error_of([&] { save_safetensors(folder.path / "none" / "x", {}); }), "cannot create"));
    CHECK(contains(error_of([&] { save_safetensors(folder.path, {}); }), "is not a regular file"));
    CHECK(contains(error_of([&] { load_safetensors(folder.path / "none"); }), "No such file"));
    CHECK(contains(error_of([&] { load_safetensors(folder.path); }), "is not a regular file"));
}
