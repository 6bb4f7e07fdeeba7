#include "gradus/examples/vae/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "gradus/core/error.h"

namespace gradus::examples {

namespace {

class GzipFile {
  public:
    explicit GzipFile(const std::filesystem::path& path) : path_(path.string()) {
        errno = 0;
        file_.reset(gzopen(path_.c_str(), "rb"));
        // zlib sets no errno when it runs out of memory.
        if (!file_) fail("cannot open ", path_, ": ", errno != 0 ? std::strerror(errno) : "out of memory");
    }

    // Up to `count` bytes; fewer only at the end of the file.
    size_t read(uint8_t* to, size_t count) {
        const int got = gzread(file_.get(), to, static_cast<unsigned>(count));
        int code = Z_OK;
        const char* reason = gzerror(file_.get(), &code);
        const int error_number = errno;
        if (code == Z_ERRNO) fail("cannot read ", path_, ": ", std::strerror(error_number));
        check(code != Z_BUF_ERROR, path_, " is cut short; fetch it anew");
        check(got >= 0 && code == Z_OK, path_, " is damaged (", reason, "); fetch it anew");
        return static_cast<size_t>(got);
    }

  private:
    struct Close {
        void operator()(gzFile_s* file) const { gzclose(file); }
    };
    std::string path_;
    std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

IdxData read_idx(const std::filesystem::path& path, int64_t rank) {
    check(rank >= 1 && rank <= 8, "read_idx: a rank of ", rank, " lies outside 1..8");
    const std::string name = path.string();
    GzipFile file(path);
    uint8_t head[4 + 4 * 8];
    const auto head_size = static_cast<size_t>(4 + 4 * rank);
    check(file.read(head, head_size) == head_size, name, " is cut short within its header; fetch it anew");
    check(head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] == rank, name, " begins with ", int{head[0]}, " ",
          int{head[1]}, " ", int{head[2]}, " ", int{head[3]}, " instead of 0 0 8 ", rank,
          ": it is no IDX file of unsigned bytes with ", rank, " dimensions");
    IdxData data;
    // No real file is larger; the limit keeps the product from overflowing.
    constexpr uint64_t most = uint64_t{1} << 36;
    uint64_t total = 1;
    for (int64_t i = 0; i < rank; ++i) {
        uint32_t extent = 0;
        for (int64_t j = 0; j < 4; ++j) extent = extent << 8 | head[4 + 4 * i + j];
        data.shape.push_back(extent);
        check(extent == 0 || total <= most / extent, name, ": the shape in its header is too large to be true");
        total *= extent;
    }
    // Grown as bytes arrive: a header that lies about the size must not cost memory.
    while (data.bytes.size() < total) {
        const size_t had = data.bytes.size(), want = std::min<uint64_t>(total - had, size_t{1} << 22);
        data.bytes.resize(had + want);
        const size_t got = file.read(data.bytes.data() + had, want);
        check(got == want, name, " is cut short: ", had + got, " bytes of the ", total,
              " its header announces; fetch it anew");
    }
    check(file.read(head, 1) == 0, name, " holds more bytes than the ", total, " its header announces");
    return data;
}

}  // namespace gradus::examples
