#include "gradus/examples/vae/report.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "gradus/autograd/node.h"
#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/png.h"
#include "gradus/examples/common/svg.h"

namespace gradus::examples {

namespace {

constexpr std::int64_t zoom = 3;
/// The step whose draws make the samples; training never reaches it.
constexpr std::uint32_t sample_step = 0xffffffff;

/// The decoded pixels as pictures, a row of the logits each.
std::vector<Image> pictures(const Tensor& logits, const ImageSet& like) {
    const std::vector<float> grey = sigmoid(logits).to_vector<float>();
    std::vector<Image> images(std::size_t(logits.size(0)), Image{like.width, like.height, 1, {}});
    auto from = grey.begin();
    for (Image& image : images) {
        image.pixels.resize(std::size_t(like.pixel_count()));
        for (std::uint8_t& pixel : image.pixels)
            pixel = std::uint8_t(std::lround(std::clamp(*from++, 0.0f, 1.0f) * 255));
    }
    return images;
}

Image picture(const ImageSet& images, std::int64_t index) {
    const auto first = images.pixels.begin() + index * images.pixel_count();
    return {images.width, images.height, 1, {first, first + images.pixel_count()}};
}

Tensor codes(const VAE& model, const ImageSet& images, const std::vector<std::int64_t>& indices) {
    return model.encode(images.batch(indices).to(model.device())["images"]).mean;  // (B, latent)
}

}  // namespace

std::string VaeHistory::text() const {
    std::string out;
    const auto add = [&](const char* kind, const std::vector<Point>& points) {
        for (const auto& [step, terms] : points)
            out += gradus::text(kind, " ", step, " ", terms.reconstruction, " ", terms.kl, "\n");
    };
    add("train", train), add("test", test);
    return out;
}

VaeHistory VaeHistory::parse(const std::string& text) {
    VaeHistory history;
    std::istringstream in(text);
    for (std::string kind; in >> kind;) {
        Point point{};
        check((kind == "train" || kind == "test") && in >> point.step >> point.terms.reconstruction >> point.terms.kl,
              "checkpoint: its history is malformed near \"", kind, "\"");
        (kind == "train" ? history.train : history.test).push_back(point);
    }
    return history;
}

void write_curves(const std::filesystem::path& path, const VaeHistory& history) {
    LineChart chart;
    chart.title = "Variational autoencoder on Fashion-MNIST";
    chart.x_label = "steps", chart.y_label = "nats an image", chart.second_label = "KL, nats an image";
    const auto add = [&](const char* name, const std::vector<VaeHistory::Point>& points, auto value, bool second) {
        Series series{name, {}, {}, second};
        for (const auto& [step, terms] : points) series.x.push_back(double(step)), series.y.push_back(value(terms));
        chart.series.push_back(series);
    };
    add(
        "-ELBO, training", history.train, [](const Terms& t) { return t.total(); }, false);
    add(
        "-ELBO, test", history.test, [](const Terms& t) { return t.total(); }, false);
    add(
        "reconstruction, test", history.test, [](const Terms& t) { return t.reconstruction; }, false);
    add(
        "KL, test", history.test, [](const Terms& t) { return t.kl; }, true);
    write_file(path, render(chart));
}

void write_reconstructions(const std::filesystem::path& path, const VAE& model, const ImageSet& images) {
    const NoGrad scope;
    constexpr std::int64_t columns = 5;
    std::vector<std::int64_t> indices;
    for (std::int64_t label = 0; label < fashion_classes; ++label) {
        const auto examples = images.of_class(label, columns);
        indices.insert(indices.end(), examples.begin(), examples.end());
    }
    const std::vector<Image> decoded = pictures(model.decode(codes(model, images, indices)), images);
    std::vector<Image> pairs;
    for (std::size_t i = 0; i < decoded.size(); ++i)
        pairs.push_back(image_grid({picture(images, indices[i]), decoded[i]}, 2, 1, 96));
    write_png(path, enlarge(image_grid(pairs, columns, 3), zoom));
}

void write_samples(const std::filesystem::path& path, const VAE& model, const ImageSet& like, std::uint64_t seed) {
    const NoGrad scope;
    constexpr std::int64_t columns = 10;
    Generator rng = Generator::restore(seed, sample_step, 0);
    const Tensor z = normal({columns * columns, model.latent()}, 0, 1, DType::f32, model.device(), &rng);
    write_png(path, enlarge(image_grid(pictures(model.decode(z), like), columns), zoom));
}

void write_walk(const std::filesystem::path& path, const VAE& model, const ImageSet& images) {
    const NoGrad scope;
    constexpr std::int64_t steps = 12;
    std::vector<std::int64_t> corners;
    for (const std::int64_t label : {0, 1, 8, 9}) {
        const auto found = images.of_class(label, 1);
        corners.push_back(found.empty() ? 0 : found[0]);
    }
    std::vector<float> shares;  // (steps * steps, 4): how much of each corner a point holds
    for (std::int64_t row = 0; row < steps; ++row) {
        for (std::int64_t column = 0; column < steps; ++column) {
            const float down = float(row) / (steps - 1), right = float(column) / (steps - 1);
            shares.insert(shares.end(),
                          {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right});
        }
    }
    const Tensor mix = to(Tensor::from(shares, {steps * steps, 4}, Device{}), model.device());
    const Tensor z = matmul(mix, codes(model, images, corners));
    write_png(path, enlarge(image_grid(pictures(model.decode(z), images), steps, 0), zoom));
}

}  // namespace gradus::examples
