#include "gradus/examples/vae/fashion.h"

#include <algorithm>
#include <system_error>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/vae/idx.h"

namespace gradus::examples {

namespace fs = std::filesystem;

namespace {

ImageSet read_part(const fs::path& folder, const std::string& part) {
    const fs::path image_file = folder / (part + "-images-idx3-ubyte.gz");
    const fs::path label_file = folder / (part + "-labels-idx1-ubyte.gz");
    IdxData images = read_idx(image_file, 3);
    IdxData labels = read_idx(label_file, 1);
    check(!images.bytes.empty(), image_file.string(), " holds no pictures");
    check(images.shape[0] == labels.shape[0], image_file.string(), " holds ", images.shape[0], " pictures, but ",
          label_file.string(), " ", labels.shape[0], " labels");
    for (const std::uint8_t label : labels.bytes)
        check(label < fashion_classes, label_file.string(), " holds the label ", int{label}, ", expected 0 to ",
              fashion_classes - 1);
    return {images.shape[1], images.shape[2], std::move(images.bytes), std::move(labels.bytes)};
}

}  // namespace

Batch ImageSet::batch(std::span<const std::int64_t> indices) const {
    const Tensor images = Tensor::empty({std::int64_t(indices.size()), pixel_count()}, DType::f32, Device{});
    float* to = images.data<float>();
    for (const std::int64_t index : indices) {
        const std::uint8_t* from = pixels.data() + index * pixel_count();
        to = std::transform(from, from + pixel_count(), to, [](std::uint8_t grey) { return float(grey) / 255.0f; });
    }
    return NamedTensors{{"images", images}};
}

std::vector<std::int64_t> ImageSet::of_class(std::int64_t label, std::int64_t count) const {
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < size() && std::int64_t(found.size()) < count; ++i) {
        if (labels[std::size_t(i)] == label) found.push_back(i);
    }
    return found;
}

Fashion read_fashion(const fs::path& folder) {
    Fashion data{read_part(folder, "train"), read_part(folder, "t10k")};
    check(data.train.height == data.test.height && data.train.width == data.test.width, folder.string(),
          ": its pictures differ in size: ", data.train.height, " x ", data.train.width, " to learn from, ",
          data.test.height, " x ", data.test.width, " to test");
    return data;
}

Fashion load_fashion(const fs::path& cache, const Message& message) {
    const fs::path folder = cache / "fashion-mnist";
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
        const fs::path package = fetch_package("dataset-fashion-mnist", cache / "deb", message);
        if (message) message("unpacking " + package.filename().string());
        const TemporaryFolder work(cache);
        unpack_package(package, work.path());
        fs::rename(work.path() / "usr/share/datasets/fashion-mnist", folder, error);
        // Another process may have published the same folder meanwhile.
        check(!error || fs::is_directory(folder), "cannot move the pictures of ", package.string(), " to ",
              folder.string(), ": ", error.message());
    }
    try {
        return read_fashion(folder);
    } catch (const Error& damage) {
        fail(damage.what(), " (delete ", folder.string(), " and run this again)");
    }
}

}  // namespace gradus::examples
