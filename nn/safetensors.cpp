#include "gradus/nn/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "gradus/nn/atomic_file.h"

namespace gradus {
namespace {

/// An open file that is read from front to back.
class InputFile {
  public:
    explicit InputFile(const std::filesystem::path& path) : name_(path.string()) {
        descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        check(descriptor_ >= 0, "safetensors: cannot open ", name_, ": ", std::strerror(errno));
        struct stat facts {};
        if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
            ::close(descriptor_);
            fail("safetensors: ", name_, " is not a regular file");
        }
        size_ = std::uint64_t(facts.st_size);
    }
    ~InputFile() { ::close(descriptor_); }
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    void read(void* destination, std::uint64_t count) {
        char* p = static_cast<char*>(destination);
        for (std::uint64_t left = count; left > 0;) {
            const ssize_t got = ::read(descriptor_, p, left);
            if (got < 0 && errno == EINTR) continue;
            check(got >= 0, "safetensors: cannot read ", name_, ": ", std::strerror(errno));
            check(got > 0, "safetensors: ", name_, " became shorter while it was read");
            p += got;
            left -= std::uint64_t(got);
        }
        checksum_ = crc32c(destination, count, checksum_);
    }
    const std::string& name() const { return name_; }
    std::uint64_t size() const { return size_; }
    std::uint32_t checksum() const { return checksum_; }

  private:
    std::string name_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
    std::uint32_t checksum_ = 0;
};

SafetensorsHeader read_header(InputFile& file) {
    check(file.size() >= 8, "safetensors: ", file.name(), ": ", file.size(), " bytes are too few for a header");
    std::uint64_t length = 0;
    file.read(&length, 8);
    check(length >= 2, "safetensors: ", file.name(), ": a header of ", length, " bytes is too short");
    check(length <= safetensors_header_limit, "safetensors: ", file.name(), ": a header of ", length,
          " bytes exceeds the limit of ", safetensors_header_limit);
    check(length <= file.size() - 8, "safetensors: ", file.name(), ": the header takes ", length,
          " bytes, the file holds ", file.size() - 8);
    std::string json(length, ' ');
    file.read(json.data(), length);
    return parse_safetensors_header(json, file.size() - 8 - length, file.name());
}

void check_values(const InputFile& file, const SafetensorsEntry& entry, const void* bytes, bool finite) {
    const std::int64_t n = entry.shape.product();
    if (entry.dtype == DType::boolean) {
        const auto* flags = static_cast<const std::uint8_t*>(bytes);
        for (std::int64_t i = 0; i < n; ++i)
            check(flags[i] <= 1, "safetensors: ", file.name(), ": tensor ", Quoted{entry.name}, ": element ", i,
                  " of a bool tensor is ", int(flags[i]), ", expected 0 or 1");
    }
    if (!finite || !is_floating(entry.dtype)) return;
    visit(entry.dtype, [&](auto zero) {
        const auto* values = static_cast<const decltype(zero)*>(bytes);
        for (std::int64_t i = 0; i < n; ++i)
            check(std::isfinite(double(values[i])), "safetensors: ", file.name(), ": tensor ", Quoted{entry.name},
                  ": element ", i, " is ", double(values[i]));
    });
}

}  // namespace

SafetensorsHeader load_safetensors_header(const std::filesystem::path& path) {
    InputFile file(path);
    return read_header(file);
}

Safetensors load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options) {
    check_device(options.device);
    InputFile file(path);
    SafetensorsHeader header = read_header(file);
    Safetensors loaded;
    loaded.metadata = std::move(header.metadata);
    for (const SafetensorsEntry& entry : header.entries) {
        const Tensor tensor = Tensor::empty(entry.shape, entry.dtype, options.device);
        const std::uint64_t bytes = entry.end - entry.begin;
        if (options.device.kind == Device::cpu) {
            file.read(tensor.address(), bytes);
            check_values(file, entry, tensor.address(), options.check_finite);
        } else {
            std::vector<char> host(bytes);
            file.read(host.data(), bytes);
            check_values(file, entry, host.data(), options.check_finite);
            copy_from_host(tensor, host.data());
        }
        loaded.tensors.emplace_back(entry.name, tensor);
    }
    loaded.checksum = file.checksum();
    return loaded;
}

std::uint32_t save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const Metadata& metadata) {
    std::vector<SafetensorsEntry> entries;
    std::unordered_map<std::string, Tensor> by_name;
    for (const auto& [name, tensor] : tensors) {
        check(tensor.defined(), "safetensors: ", path.string(), ": tensor ", Quoted{name}, " is undefined");
        entries.push_back({name, tensor.dtype(), tensor.shape(), 0, 0});
        by_name.emplace(name, tensor);
    }
    const std::string json = format_safetensors_header(entries, metadata, path.string());
    AtomicFile file(path);
    const std::uint64_t length = json.size();
    file.write(&length, 8);
    file.write(json.data(), json.size());
    std::vector<char> host;
    for (const SafetensorsEntry& entry : entries) {
        const Tensor& tensor = by_name.at(entry.name);
        const std::uint64_t bytes = entry.end - entry.begin;
        if (tensor.device().kind == Device::cpu && tensor.is_contiguous()) {
            file.write(tensor.address(), bytes);
        } else {
            host.resize(bytes);
            copy_to_host(tensor, host.data());
            file.write(host.data(), bytes);
        }
    }
    file.commit();
    return file.checksum();
}

}  // namespace gradus
