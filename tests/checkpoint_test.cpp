// Checkpoints: whole or not there, consistent, and a resumed run that continues bit for bit.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/checkpoint.h"
#include "gradus/nn/data.h"
#include "gradus/nn/schedule.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

namespace {

struct Folder {
    fs::path path;
    Folder() {
        std::string name = (fs::temp_directory_path() / "gradus-checkpoint-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Folder() { fs::remove_all(path); }
};

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
}
void flip_byte(const fs::path& path, std::size_t at) {
    std::string bytes = bytes_of(path);
    REQUIRE(at < bytes.size());
    bytes[at] = char(bytes[at] ^ 1);
    write_bytes(path, bytes);
}

/// A checkpoint whose parts all hold the number n.
Checkpoint numbered(int n, std::int64_t size = 3) {
    const std::vector<float> values(static_cast<std::size_t>(size), float(n));
    return {{{"layer.weight", Tensor::from(values, Device{})}},
            {{"state.layer.weight.mean", Tensor::from(values, Device{})}},
            {{"step", std::int64_t(n)}},
            {},
            {}};
}
/// That number, if all parts agree on it.
int number_in(const Checkpoint& checkpoint) {
    const auto n = int(integer_at(checkpoint.values, "step"));
    for (const NamedTensors* part : {&checkpoint.model, &checkpoint.optimizer}) {
        REQUIRE(part->size() == 1);
        const auto values = (*part)[0].second.to_vector<float>();
        REQUIRE(std::count(values.begin(), values.end(), float(n)) == std::ptrdiff_t(values.size()));
    }
    return n;
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the newest two checkpoints are kept and the newest is loaded", "[checkpoint]") {
    const Folder folder;
    CHECK_FALSE(has_checkpoint(folder.path / "run"));
    CHECK(contains(error_of([&] { load_latest(folder.path / "run"); }), "checkpoint: there is none in"));
    CHECK(save_checkpoint(folder.path / "run", numbered(1)) == "checkpoint-000001");
    CHECK(has_checkpoint(folder.path / "run"));
    for (int n = 2; n <= 4; ++n) save_checkpoint(folder.path / "run", numbered(n));
    CHECK(names_in(folder.path / "run") == Names{"checkpoint-000003", "checkpoint-000004", "latest"});
    CHECK(names_in(folder.path / "run" / "checkpoint-000004") ==
          Names{"model.safetensors", "optimizer.safetensors", "state.json"});
    const Checkpoint latest = load_latest(folder.path / "run");
    CHECK(number_in(latest) == 4);
    CHECK(latest.name == "checkpoint-000004");
    CHECK(latest.warning.empty());
    CHECK(number_in(load_checkpoint(folder.path / "run" / "checkpoint-000003")) == 3);
    save_checkpoint(folder.path / "run", numbered(5), 1);
    CHECK(names_in(folder.path / "run") == Names{"checkpoint-000005", "latest"});
}

TEST_CASE("values of every kind come back exactly", "[checkpoint]") {
    const Folder folder;
    Checkpoint checkpoint = numbered(1);
    checkpoint.values["negative"] = std::int64_t(-5);
    checkpoint.values["largest"] = std::numeric_limits<std::int64_t>::max();
    checkpoint.values["smallest"] = std::numeric_limits<std::int64_t>::min();
    checkpoint.values["third"] = 1.0 / 3;
    checkpoint.values["whole"] = 2.0;
    checkpoint.values["tiny"] = 5e-324;
    checkpoint.values["text"] = std::string("a \"quoted\" 中文\nline");
    Generator generator = Generator::restore(0xfedcba9876543210u, 0xffffffff, 7);
    put_generator(checkpoint.values, "generator", generator);
    save_checkpoint(folder.path, checkpoint);
    const Checkpoint loaded = load_latest(folder.path);
    CHECK(loaded.values == checkpoint.values);
    CHECK(generator_at(loaded.values, "generator") == generator);
    CHECK(number_at(loaded.values, "step") == 1.0);
    CHECK(contains(error_of([&] { integer_at(loaded.values, "third"); }), "'third' is a number, expected an integer"));
    CHECK(contains(error_of([&] { text_at(loaded.values, "none"); }), "'none' is missing"));
    checkpoint.values["bad"] = std::numeric_limits<double>::infinity();
    CHECK(contains(error_of([&] { save_checkpoint(folder.path, checkpoint); }), "'bad' is inf"));
    checkpoint.values["bad"] = std::string("\xff");
    CHECK(contains(error_of([&] { save_checkpoint(folder.path, checkpoint); }), "not valid UTF-8"));
    CHECK(names_in(folder.path) == Names{"checkpoint-000001", "latest"});
}

TEST_CASE("tied weights are stored once and tied again after loading", "[checkpoint]") {
    const Folder folder;
    const fs::path path = folder.path / "tied.safetensors";
    const Tensor shared = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f}, {2, 2}, Device{});
    save_state(path, {{"embedding.weight", shared}, {"output.weight", shared}, {"turned", transpose(shared)}},
               {{"note", "x"}});
    CHECK(load_safetensors_header(path).entries.size() == 2);
    CHECK(load_safetensors_header(path).metadata ==
          Metadata{{"alias.output.weight", "embedding.weight"}, {"note", "x"}});
    const Safetensors loaded = load_state(path);
    REQUIRE(loaded.tensors.size() == 3);
    CHECK(loaded.tensors[2].first == "output.weight");
    CHECK(loaded.tensors[2].second.address() == loaded.tensors[0].second.address());
    CHECK(loaded.tensors[1].second.to_vector<float>() == std::vector<float>{1, 3, 2, 4});
    save_safetensors(path, {{"a", shared}}, {{"alias.b", "c"}});
    CHECK(contains(error_of([&] { load_state(path); }), "'b' stands for 'c', which is not in the file"));
    save_safetensors(path, {{"a", shared}, {"b", shared}}, {{"alias.b", "a"}});
    CHECK(contains(error_of([&] { load_state(path); }), "'b' is both stored and an alias"));
    CHECK(contains(error_of([&] {
                       save_state(path, {{"a", shared}, {"b", clone(shared)}, {"b", shared}});
                   }),
                   "'b' appears twice"));
}

TEST_CASE("any damage is noticed, and the intact checkpoint is named", "[checkpoint]") {
    const Folder folder;
    save_checkpoint(folder.path, numbered(1));
    save_checkpoint(folder.path, numbered(2));
    const fs::path newest = folder.path / "checkpoint-000002";
    const std::string good = bytes_of(newest / "model.safetensors");
    const std::string advice = "checkpoint-000001 in the same folder is intact: load it by name, or allow falling back";
    const auto damaged = [&](const std::string& reason) {
        const std::string error = error_of([&] { load_latest(folder.path); });
        CHECK(contains(error, reason));
        CHECK(contains(error, advice));
        const Checkpoint earlier = load_latest(folder.path, true);
        CHECK(number_in(earlier) == 1);
        CHECK(earlier.name == "checkpoint-000001");
        CHECK(contains(earlier.warning, reason));
        CHECK(contains(earlier.warning, "Loaded checkpoint-000001 instead"));
    };
    flip_byte(newest / "model.safetensors", good.size() - 1);
    damaged("model.safetensors is not the file that was saved with state.json: its checksum differs");
    write_bytes(newest / "model.safetensors", good.substr(0, good.size() / 2));
    damaged("model.safetensors");
    write_bytes(newest / "model.safetensors", bytes_of(folder.path / "checkpoint-000001" / "model.safetensors"));
    damaged("is not the file that was saved with state.json");
    write_bytes(newest / "model.safetensors", good);
    CHECK(number_in(load_latest(folder.path)) == 2);

    const std::string state = bytes_of(newest / "state.json");
    std::string changed = state;
    changed.replace(changed.find("\"step\": 2"), 9, "\"step\": 3");
    write_bytes(newest / "state.json", changed);
    damaged("was changed after it was written");
    write_bytes(newest / "state.json", state.substr(0, state.size() / 2));
    damaged("is not valid JSON");
    write_bytes(newest / "state.json", "");
    damaged("is missing or empty");
    fs::remove_all(newest);
    damaged("there is no folder");
    flip_byte(folder.path / "checkpoint-000001" / "optimizer.safetensors", 90);
    CHECK(contains(error_of([&] { load_latest(folder.path, true); }), "No other checkpoint in the folder is intact"));
}

TEST_CASE("a flipped bit anywhere in a tensor file is noticed", "[checkpoint]") {
    const Folder folder;
    save_checkpoint(folder.path, numbered(1));
    const fs::path place = folder.path / "checkpoint-000001";
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
        const std::string good = bytes_of(place / name);
        for (std::size_t at = 0; at < good.size(); at += 3) {
            INFO(name << " byte " << at);
            flip_byte(place / name, at);
            CHECK_THROWS_AS(load_latest(folder.path), Error);
            write_bytes(place / name, good);
        }
    }
    CHECK(number_in(load_latest(folder.path)) == 1);
}

TEST_CASE("a foreign folder is refused with one clear text", "[checkpoint]") {
    const Folder folder;
    const fs::path place = folder.path / "checkpoint-000001";
    fs::create_directory(place);
    const auto refused = [&](const std::string& state, const std::string& reason) {
        write_bytes(place / "state.json", state);
        CHECK(contains(error_of([&] { load_latest(folder.path); }), reason));
    };
    CHECK(contains(error_of([&] { load_latest(folder.path); }), "state.json is missing or empty"));
    refused("{\"step\": 3}", "was not written by this library");
    refused("[]", "is a list, expected");
    refused("3", "is a single value");
    refused("{\"format\": \"gradus checkpoint\", \"format_version\": 2}",
            "has the format version 2, this library reads 1");
    refused("{\"format\": null}", "'format' is null");
    refused("{\"values\": {\"a\": {}}}", "'a' is an object");
    refused("{\"values\": {\"a\": 1, \"a\": 2}}", "names 'a' twice");
    refused("{\"a\": 18446744073709551615}", "beyond 63 bits");
    refused("{\"values\": " + std::string(200'000, '[') + "}", "is a list");
    write_bytes(folder.path / "latest", "../../etc\n");
    CHECK(contains(error_of([&] { load_latest(folder.path); }), "names '../../etc', which is no checkpoint"));
}

TEST_CASE("what an interrupted save left is ignored and cleared by the next", "[checkpoint]") {
    const Folder folder;
    save_checkpoint(folder.path, numbered(1));
    fs::create_directory(folder.path / ".saving-12345");
    write_bytes(folder.path / ".saving-12345" / "model.safetensors", "half");
    write_bytes(folder.path / ".latest.12345-0.tmp", "checkp");
    write_bytes(folder.path / "notes.txt", "mine");
    CHECK(number_in(load_latest(folder.path)) == 1);
    save_checkpoint(folder.path, numbered(2));
    CHECK(names_in(folder.path) == Names{"checkpoint-000001", "checkpoint-000002", "latest", "notes.txt"});
}

TEST_CASE("BB-141 missing and unexpected names", "[checkpoint]") {
    const auto values = [](float x) { return Tensor::from({x, x}, Device{}); };
    const NamedTensors model = {{"a", values(1)}, {"b", values(2)}};
    const auto unchanged = [&] {
        CHECK(model[0].second.to_vector<float>() == std::vector<float>{1, 1});
        CHECK(model[1].second.to_vector<float>() == std::vector<float>{2, 2});
    };
    const NamedTensors prefixed = {{"module.a", values(3)}, {"module.b", values(4)}};
    const std::string error = error_of([&] { copy_state(model, prefixed); });
    CHECK(contains(error, "missing (2): 'a' 'b'"));
    CHECK(contains(error, "unexpected (2): 'module.a' 'module.b'"));
    unchanged();
    const NamedTensors unlike = {{"a", values(3)}, {"b", Tensor::from({1.0f}, Device{})}};
    CHECK(contains(error_of([&] { copy_state(model, unlike); }), "unlike: 'b': expected (2,) f32, got (1,) f32"));
    CHECK(contains(error_of([&] { copy_state(model, unlike, false); }), "unlike: 'b'"));
    unchanged();
    CHECK(contains(error_of([&] {
                       copy_state(model, {{"a", cast(values(3), DType::f64)}, {"b", values(4)}});
                   }),
                   "got (2,) f64"));
    unchanged();
    const auto version = model[0].second.version();
    const CopyReport report = copy_state(model, {{"a", values(3)}, {"c", values(4)}}, false);
    CHECK(report.missing == Names{"b"});
    CHECK(report.unexpected == Names{"c"});
    CHECK(model[0].second.to_vector<float>() == std::vector<float>{3, 3});
    CHECK(model[0].second.version() > version);
    CHECK(copy_state(model, {{"b", values(6)}, {"a", values(5)}}).complete());
    CHECK(model[1].second.to_vector<float>() == std::vector<float>{6, 6});
}

TEST_CASE("BB-142 killed while saving", "[checkpoint]") {
    const Folder folder;
    const std::int64_t size = 20'000;
    std::vector<Checkpoint> ready;  // the child only saves: after a fork it must not start threads
    for (int n = 0; n < 64; ++n) ready.push_back(numbered(n, size));
    const auto start = std::chrono::steady_clock::now();
    save_checkpoint(folder.path, ready[0]);
    using Microseconds = std::chrono::microseconds;
    const auto took = std::chrono::duration_cast<Microseconds>(std::chrono::steady_clock::now() - start).count();
    const auto longest = std::uint32_t(std::clamp<long long>(4 * took, 2'000, 250'000));
    int last = 0, progress = 0;
    std::uint32_t word = 12345;
    for (int round = 0; round < 20; ++round) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            try {
                for (int n = last + 1;; ++n) save_checkpoint(folder.path, ready[std::size_t(n % 64)]);
            } catch (...) {
                ::_exit(1);
            }
        }
        word = word * 1664525 + 1013904223;
        std::this_thread::sleep_for(Microseconds((word >> 8) % longest));
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        REQUIRE(WIFSIGNALED(status));  // it did not fail by itself
        const Checkpoint survivor = load_latest(folder.path);
        CHECK(survivor.warning.empty());
        const int n = number_in(survivor);
        progress += n != last;
        last = n;
    }
    CHECK(progress >= 3);  // the saves did happen
    save_checkpoint(folder.path, ready[7]);
    CHECK(names_in(folder.path).size() == 3);
    CHECK(number_in(load_latest(folder.path)) == 7);
}

namespace {

/// A small training with everything that carries state: two layers' worth of weights, dropout, AdamW, a schedule,
/// shuffled data.
struct Training {
    Tensor weight = require_grad(Tensor::from({0.1f, -0.2f, 0.3f, 0.4f}, {2, 2}, Device{}));
    Tensor bias = require_grad(Tensor::from({0.0f, 0.0f}, Device{}));
    NamedTensors parameters{{"weight", weight}, {"bias", bias}};
    AdamW optimizer{parameters, {.lr = 0.05}};
    Schedule schedule{optimizer, noam_factor(4, 3)};
    Generator generator{99};
    DataLoader loader{10,
                      [](std::span<const std::int64_t> indices) {
                          std::vector<float> x;
                          for (const std::int64_t i : indices) x.insert(x.end(), {float(i), float(i * i) / 10});
                          return Batch({{"x", Tensor::from(x, {std::int64_t(indices.size()), 2}, Device{})}});
                      },
                      {.batch_size = 3, .seed = 4}};

    void step() {
        auto batch = loader.next();
        if (!batch) batch = loader.next();
        const Tensor x = dropout(batch->at("x"), 0.3, true, &generator);
        optimizer.zero_grad();
        backward(mean(square(matmul(x, weight) + bias - 1.0)));
        optimizer.step();
        schedule.advance();
    }
    void save(const fs::path& folder) {
        Checkpoint checkpoint{parameters, optimizer.state_dict(), {}, {}, {}};
        schedule.save(checkpoint.values);
        loader.save(checkpoint.values);
        put_generator(checkpoint.values, "generator", generator);
        save_checkpoint(folder, checkpoint);
    }
    void load(const fs::path& folder) {
        const Checkpoint checkpoint = load_latest(folder);
        copy_state(parameters, checkpoint.model);
        optimizer.load_state_dict(checkpoint.optimizer);
        schedule.load(checkpoint.values);
        loader.load(checkpoint.values);
        generator = generator_at(checkpoint.values, "generator");
    }
};

}  // namespace

TEST_CASE("a resumed training continues bit for bit", "[checkpoint][threads]") {
    const Folder folder;
    for (const int before : {1, 4, 6}) {
        Training whole;
        for (int i = 0; i < before; ++i) whole.step();
        whole.save(folder.path);
        Training resumed;
        resumed.load(folder.path);
        for (int i = 0; i < 7; ++i) whole.step(), resumed.step();
        CHECK(resumed.weight.to_vector<float>() == whole.weight.to_vector<float>());
        CHECK(resumed.bias.to_vector<float>() == whole.bias.to_vector<float>());
        CHECK(resumed.optimizer.lr() == whole.optimizer.lr());
        CHECK(whole.weight.to_vector<float>() != Training().weight.to_vector<float>());
    }
}
