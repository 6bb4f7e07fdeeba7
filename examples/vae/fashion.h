// Fashion-MNIST: 70,000 grey pictures of clothes in ten classes, from a Debian package.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "gradus/examples/common/fetch.h"
#include "gradus/nn/batch.h"

namespace gradus::examples {

constexpr std::int64_t fashion_classes = 10;

/// Labelled pictures of one size; a data set for DataLoader.
struct ImageSet {
    std::int64_t height = 0, width = 0;
    std::vector<std::uint8_t> pixels;  // size() * height * width
    std::vector<std::uint8_t> labels;  // below fashion_classes

    std::int64_t size() const { return std::int64_t(labels.size()); }
    std::int64_t pixel_count() const { return height * width; }
    /// "images": (B, pixels) f32 in [0, 1], on the CPU.
    Batch batch(std::span<const std::int64_t> indices) const;
    /// The first pictures of a class, at most `count`.
    std::vector<std::int64_t> of_class(std::int64_t label, std::int64_t count) const;
};

struct Fashion {
    ImageSet train, test;
};

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz of a folder. Throws gradus::Error, naming the file, when one
/// is missing or damaged, is empty, or does not fit the others.
Fashion read_fashion(const std::filesystem::path& folder);

/// The pictures from `cache`. The first call downloads the package dataset-fashion-mnist (31 MB, into cache/deb) and
/// unpacks it (cache/fashion-mnist); later calls only read. Throws gradus::Error naming what is missing and the fix.
Fashion load_fashion(const std::filesystem::path& cache, const Message& message);

}  // namespace gradus::examples
