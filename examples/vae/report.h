// What a run leaves to look at: the curve of its loss, and pictures that the model made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/examples/vae/fashion.h"
#include "gradus/examples/vae/model.h"

namespace gradus::examples {

/// The terms of -ELBO in nats an image.
struct Terms {
    double reconstruction = 0, kl = 0;
    double total() const { return reconstruction + kl; }
};

/// The points of a run's curves.
struct VaeHistory {
    struct Point {
        std::int64_t step;
        Terms terms;
    };
    std::vector<Point> train, test;                    ///< averages since the point before; after each epoch
    std::string text() const;                          ///< as kept in a checkpoint
    static VaeHistory parse(const std::string& text);  ///< throws gradus::Error on anything else
};

/// -ELBO and its reconstruction term (left axis) and the KL term (right axis) over steps, as an SVG file.
void write_curves(const std::filesystem::path& path, const VaeHistory& history);

/// Test pictures of every class, each beside its reconstruction from the posterior's mean: a row a class, as PNG.
void write_reconstructions(const std::filesystem::path& path, const VAE& model, const ImageSet& images);

/// 10 x 10 pictures decoded from N(0, 1), as PNG; the same seed draws the same points.
void write_samples(const std::filesystem::path& path, const VAE& model, const ImageSet& like, std::uint64_t seed);

/// The plane between the codes of four test pictures (a T-shirt, trousers, a bag, a boot at the corners), decoded at
/// 12 x 12 points, as PNG.
void write_walk(const std::filesystem::path& path, const VAE& model, const ImageSet& images);

}  // namespace gradus::examples
