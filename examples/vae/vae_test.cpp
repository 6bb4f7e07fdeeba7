#include <zlib.h>

#include <atomic>
#include <cmath>
#include <sstream>
#include <string>

#include "gradus/autograd/node.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/test_support.h"
#include "gradus/examples/vae/trainer.h"
#include "gradus/tests/support.h"

using namespace gradus;
using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;
namespace fs = std::filesystem;

namespace {

// A bright square on dark ground whose place depends on the label, with some texture of its own.
ImageSet squares(std::int64_t count) {
    ImageSet set{8, 8, {}, {}};
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t label = i % fashion_classes;
        set.labels.push_back(std::uint8_t(label));
        for (std::int64_t y = 0; y < 8; ++y) {
            for (std::int64_t x = 0; x < 8; ++x) {
                const bool inside = std::abs(y - 2 - label / 5 * 3) < 2 && std::abs(x - 1 - label % 5) < 2;
                set.pixels.push_back(std::uint8_t(inside ? 200 + i * 7 % 50 : i * 13 % 20));
            }
        }
    }
    return set;
}

Fashion synthetic() { return {squares(70), squares(20)}; }

VaeSettings small_settings(const fs::path& out) {
    VaeSettings s;
    s.out = out, s.hidden = 16, s.latent = 3, s.batch = 16, s.epochs = 3, s.seed = 5;
    return s;
}

Tensor first_images(const ImageSet& set, std::int64_t count) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < count; ++i) indices.push_back(i);
    return set.batch(indices)["images"];
}

std::string big_endian(std::initializer_list<std::int64_t> words) {
    std::string bytes;
    for (const std::int64_t word : words) {
        for (int shift = 24; shift >= 0; shift -= 8) bytes += char(word >> shift & 255);
    }
    return bytes;
}

void write_gzip(const fs::path& path, const std::string& bytes) {
    gzFile file = gzopen(path.c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(gzwrite(file, bytes.data(), unsigned(bytes.size())) == int(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
}

void write_part(const fs::path& folder, const std::string& part, const ImageSet& set) {
    write_gzip(folder / (part + "-images-idx3-ubyte.gz"), big_endian({0x803, set.size(), set.height, set.width}) +
                                                              std::string(set.pixels.begin(), set.pixels.end()));
    write_gzip(folder / (part + "-labels-idx1-ubyte.gz"),
               big_endian({0x801, set.size()}) + std::string(set.labels.begin(), set.labels.end()));
}

/// Runs with plain progress lines, one for every step, into `shown`.
VaeRun run(VaeTrainer& trainer, const std::atomic<bool>& stop, std::string* shown = nullptr) {
    std::ostringstream out;
    Progress progress("training", out, {.interval = 0}, [] { return 0.0; });
    VaeRun report = trainer.run(stop, progress);
    if (shown) *shown = out.str();
    return report;
}

void check_same_bits(const NamedTensors& a, const NamedTensors& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        INFO(a[i].first);
        CHECK(a[i].first == b[i].first);
        CHECK(a[i].second.to_vector<double>() == b[i].second.to_vector<double>());
    }
}

}  // namespace

TEST_CASE("the loss is the formula in plain doubles", "[examples][vae]") {
    const std::vector<double> logits{-2, 0, 0.5, 3, -1, 7}, pixels{0, 1, 0.25, 0.9, 0.5, 1};
    const std::vector<double> mean{0.3, -1.2, 0, 2}, log_variance{0, -1, 0.7, -3};
    const Tensor x = Tensor::from(pixels, {2, 3}, Device{});
    const ElboTerms terms =
        elbo_terms({Tensor::from(logits, {2, 3}, Device{}),
                    {Tensor::from(mean, {2, 2}, Device{}), Tensor::from(log_variance, {2, 2}, Device{})}},
                   x);
    double reconstruction = 0, kl = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double p = 1 / (1 + std::exp(-logits[i]));
        reconstruction -= pixels[i] * std::log(p) + (1 - pixels[i]) * std::log(1 - p);
    }
    for (std::size_t i = 0; i < mean.size(); ++i)
        kl -= 0.5 * (1 + log_variance[i] - mean[i] * mean[i] - std::exp(log_variance[i]));
    CHECK(terms.reconstruction.item() == Approx(reconstruction).epsilon(1e-12));
    CHECK(terms.kl.item() == Approx(kl).epsilon(1e-12));
}

TEST_CASE("the forward pass is the layers in plain doubles", "[examples][vae]") {
    constexpr std::int64_t pixels = 5, hidden = 4, latent = 2, count = 3;
    Generator rng(7);
    VAE model(pixels, hidden, latent, rng);
    model.to(DType::f64);
    const auto layer = [](const Linear& linear, const std::vector<double>& x, bool positive) {
        const auto w = linear.weight.to_vector<double>(), b = linear.bias.to_vector<double>();
        std::vector<double> y = b;
        for (std::size_t i = 0; i < y.size(); ++i) {
            for (std::size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
            if (positive && y[i] < 0) y[i] = 0;
        }
        return y;
    };
    std::vector<double> x(count * pixels);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(i * i % 11) / 10;
    Generator draws(3), same_draws(3);
    const VAE::Output output = model(Tensor::from(x, {count, pixels}, Device{}), draws);
    const auto noise = normal({count, latent}, 0, 1, DType::f64, Device{}, &same_draws).to_vector<double>();
    const auto logits = output.logits.to_vector<double>();
    REQUIRE(output.logits.shape() == Shape{count, pixels});
    for (std::int64_t n = 0; n < count; ++n) {
        const std::vector<double> h =
            layer(model.fc_input, {x.begin() + n * pixels, x.begin() + (n + 1) * pixels}, true);
        std::vector<double> z = layer(model.fc_mean, h, false);
        const std::vector<double> log_variance = layer(model.fc_log_variance, h, false);
        for (std::size_t i = 0; i < latent; ++i)
            z[i] += std::exp(log_variance[i] / 2) * noise[std::size_t(n) * latent + i];
        const std::vector<double> y = layer(model.fc_output, layer(model.fc_latent, z, true), false);
        for (std::size_t i = 0; i < pixels; ++i)
            CHECK(logits[std::size_t(n) * pixels + i] == Approx(y[i]).epsilon(1e-10).margin(1e-12));
    }
}

TEST_CASE("gradients reach every parameter of the autoencoder", "[examples][vae]") {
    Generator rng(1);
    const VAE model(64, 16, 3, rng);
    const Tensor x = first_images(squares(10), 10);
    const ElboTerms terms = elbo_terms(model(x, rng), x);
    backward(terms.reconstruction + terms.kl);
    const NamedTensors parameters = model.named_parameters();
    CHECK(parameters.size() == 10);
    for (const auto& [name, parameter] : parameters) {
        INFO(name);
        REQUIRE(parameter.grad().defined());
        const double size = norm(parameter.grad()).item();
        CHECK(std::isfinite(size));
        CHECK(size > 0);
    }
}

TEST_CASE("a step lowers the loss, and training learns the pictures", "[examples][vae]") {
    const TemporaryFolder folder;
    const Fashion data = synthetic();
    VaeSettings s = small_settings(folder.path());
    s.lr = 1e-2;
    VaeTrainer trainer(s, data);
    const Tensor x = first_images(data.train, 40);
    const double before = trainer.test().total();
    trainer.step(x);
    const double after_one = trainer.test().total();
    CHECK(after_one < before);
    for (int i = 0; i < 150; ++i) trainer.step(x);
    // Pixels independent of each other, each at its mean, cost the entropy of that mean: the code must beat it.
    double blind = 0;
    for (std::int64_t i = 0; i < 64; ++i) {
        double mean = 0;
        for (std::int64_t n = 0; n < 40; ++n) mean += data.train.pixels[std::size_t(n * 64 + i)] / 255.0 / 40;
        blind -= mean * std::log(mean) + (1 - mean) * std::log(1 - mean);
    }
    CHECK(trainer.test().total() < blind);
}

TEST_CASE("a resumed run of the autoencoder ends with the same bits", "[examples][vae]") {
    const Fashion data = synthetic();  // 5 steps an epoch
    const TemporaryFolder folder;
    const std::atomic<bool> never = false;
    const VaeSettings whole = small_settings(folder.path() / "whole");
    VaeTrainer straight(whole, data);
    std::string shown;
    CHECK(run(straight, never, &shown).stopped_by == "epochs");
    CHECK(contains(shown, "training 15/15"));
    CHECK(contains(shown, "epoch 3: test -ELBO"));
    CHECK(contains(shown, "img/s"));
    CHECK(straight.steps() == 15);
    const Checkpoint expected = load_latest(whole.out);

    // Stopped within an epoch, at its end, and at once.
    VaeSettings parts = small_settings(folder.path() / "parts");
    for (const std::int64_t steps : {3, 5, 5, 12, 0}) {
        parts.steps = steps;
        VaeTrainer trainer(parts, data);
        const VaeRun part = run(trainer, never);
        CHECK(part.stopped_by == (steps > 0 ? "steps" : "epochs"));
        parts.resume = true;
    }
    const Checkpoint resumed = load_latest(parts.out);
    check_same_bits(expected.model, resumed.model);
    check_same_bits(expected.optimizer, resumed.optimizer);
    CHECK(expected.values == resumed.values);
    for (const char* picture : {"reconstructions.png", "samples.png", "walk.png", "curve.svg"})
        CHECK(read_file(whole.out / picture) == read_file(parts.out / picture));
    CHECK(read_file(whole.out / "walk.png").substr(1, 3) == "PNG");

    parts.seed = 6;
    const std::string error = error_of([&] { VaeTrainer(parts, data); });
    CHECK(contains(error, "run.seed is 5 there and 6 now"));
    parts.out = folder.path() / "nowhere";
    CHECK(contains(error_of([&] { VaeTrainer(parts, data); }), "--resume found no checkpoint in"));
}

TEST_CASE("an interrupt saves the autoencoder where it stands", "[examples][vae]") {
    const Fashion data = synthetic();
    const TemporaryFolder folder;
    VaeSettings s = small_settings(folder.path());
    const std::atomic<bool> at_once = true;
    {
        VaeTrainer trainer(s, data);
        trainer.step(first_images(data.train, 16));
        CHECK(run(trainer, at_once).stopped_by == "interrupt");
    }
    s.resume = true;
    VaeTrainer trainer(s, data);
    CHECK(trainer.steps() == 1);
}

TEST_CASE("a damaged checkpoint of the autoencoder is refused by name", "[examples][vae]") {
    const Fashion data = synthetic();
    const TemporaryFolder folder;
    VaeSettings s = small_settings(folder.path());
    s.steps = 1;
    const std::atomic<bool> never = false;
    VaeTrainer trainer(s, data);
    run(trainer, never);
    const fs::path file = folder.path() / "checkpoint-000001" / "model.safetensors";
    std::string bytes = read_file(file);
    bytes.back() = char(bytes.back() ^ 1);
    write_file(file, bytes);
    s.resume = true;
    CHECK(contains(error_of([&] { VaeTrainer(s, data); }), "model.safetensors"));
    CHECK(fs::exists(file));

    run(trainer, never);  // saves once more
    write_file(folder.path() / "checkpoint-000002" / "state.json", "{");
    CHECK(contains(error_of([&] { VaeTrainer(s, data); }), "No other checkpoint in the folder is intact"));
    bytes.back() = char(bytes.back() ^ 1);
    write_file(file, bytes);
    CHECK(contains(error_of([&] { VaeTrainer(s, data); }), "to continue from checkpoint-000001 delete"));
    fs::remove_all(folder.path() / "checkpoint-000002");
    fs::remove(folder.path() / "latest");
    CHECK(VaeTrainer(s, data).steps() == 1);
}

TEST_CASE("a loss that is not finite ends training before anything changes", "[examples][vae]") {
    const Fashion data = synthetic();
    const TemporaryFolder folder;
    VaeTrainer trainer(small_settings(folder.path()), data);
    const auto before = trainer.model().fc_mean.weight.to_vector<float>();
    const Tensor x = full({4, 64}, std::nan(""), DType::f32, Device{});
    CHECK(contains(error_of([&] { trainer.step(x); }), "the loss of step 1 is not finite"));
    CHECK(trainer.model().fc_mean.weight.to_vector<float>() == before);
    CHECK(trainer.steps() == 0);
}

TEST_CASE("pictures are read from a folder, and files that do not fit are refused", "[examples][vae]") {
    const TemporaryFolder folder;
    const ImageSet train = squares(12), test = squares(10);
    write_part(folder.path(), "train", train);
    CHECK(contains(error_of([&] { read_fashion(folder.path()); }), "t10k-images-idx3-ubyte.gz"));
    write_part(folder.path(), "t10k", test);
    const Fashion data = read_fashion(folder.path());
    CHECK(data.train.pixels == train.pixels);
    CHECK(data.train.labels == train.labels);
    CHECK(data.test.size() == 10);
    CHECK(data.train.of_class(1, 5) == std::vector<std::int64_t>{1, 11});
    const std::int64_t indices[] = {11, 0};
    const auto grey = data.train.batch(indices)["images"].to_vector<float>();
    REQUIRE(grey.size() == 128);
    for (std::size_t i = 0; i < 64; ++i) {
        CHECK(grey[i] == float(train.pixels[11 * 64 + i]) / 255.0f);
        CHECK(grey[64 + i] == float(train.pixels[i]) / 255.0f);
    }

    ImageSet wrong = test;
    wrong.labels[3] = 10;
    write_part(folder.path(), "t10k", wrong);
    CHECK(contains(error_of([&] { read_fashion(folder.path()); }), "holds the label 10, expected 0 to 9"));
    wrong = test;
    wrong.height = 4, wrong.width = 16;
    write_part(folder.path(), "t10k", wrong);
    CHECK(contains(error_of([&] { read_fashion(folder.path()); }),
                   "differ in size: 8 x 8 to learn from, 4 x 16 to test"));
    write_part(folder.path(), "t10k", squares(0));
    CHECK(contains(error_of([&] { read_fashion(folder.path()); }), "holds no pictures"));
    write_gzip(folder.path() / "train-labels-idx1-ubyte.gz", big_endian({0x801, 1}) + '\3');
    CHECK(contains(error_of([&] { read_fashion(folder.path()); }), "holds 12 pictures, but"));
}

TEST_CASE("the pictures' package is fetched once, and a damaged cache says what to do", "[examples][vae]") {
    const TemporaryFolder folder, source;
    write_part(source.path(), "train", squares(12));
    write_part(source.path(), "t10k", squares(10));
    {
        FakePrograms programs;
        programs.add("apt-get", fake_download);
        programs.add("dpkg", "/bin/mkdir -p \"$3/usr/share/datasets\" && /bin/cp -r '" + source.path().string() +
                                 "' \"$3/usr/share/datasets/fashion-mnist\"\n");
        CHECK(load_fashion(folder.path(), {}).train.size() == 12);
    }
    FakePrograms none;
    CHECK(load_fashion(folder.path(), {}).test.size() == 10);
    write_file(folder.path() / "fashion-mnist/train-labels-idx1-ubyte.gz", "x");
    CHECK(contains(error_of([&] { load_fashion(folder.path(), {}); }),
                   "(delete " + (folder.path() / "fashion-mnist").string() + " and run this again)"));
}

TEST_CASE("values that make no sense are refused by the option's name", "[examples][vae]") {
    const auto error = [](auto change) {
        VaeSettings s;
        change(s);
        return error_of([&] { check_settings(s); });
    };
    check_settings({});
    CHECK(error([](VaeSettings& s) { s.hidden = 0; }) == "vae: --hidden must lie in [1, 65536]: got 0");
    CHECK(contains(error([](VaeSettings& s) { s.latent = -1; }), "--latent"));
    CHECK(contains(error([](VaeSettings& s) { s.batch = 0; }), "--batch"));
    CHECK(contains(error([](VaeSettings& s) { s.epochs = 0; }), "--epochs"));
    CHECK(contains(error([](VaeSettings& s) { s.steps = -1; }), "--steps"));
    CHECK(contains(error([](VaeSettings& s) { s.lr = 0; }), "--lr"));
    CHECK(contains(error([](VaeSettings& s) { s.lr = std::nan(""); }), "--lr"));
}

TEST_CASE("a history reads back as it was written", "[examples][vae]") {
    VaeHistory history;
    history.train = {{100, {300.1, 1.0 / 3}}, {200, {250, 15.25}}};
    history.test = {{150, {260.5, 14}}};
    CHECK(VaeHistory::parse(history.text()).text() == history.text());
    CHECK(VaeHistory::parse(history.text()).train[0].terms.kl == 1.0 / 3);
    CHECK(contains(error_of([] { VaeHistory::parse("train 5 nonsense"); }), "malformed"));
}
