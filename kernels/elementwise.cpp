#include "gradus/kernels/elementwise.h"

#include <array>
#include <cstring>
#include <optional>

#include "gradus/kernels/parallel.h"

namespace gradus::kernels::cpu {

namespace {

template <class E>
void copy_run(const E* source, std::int64_t stride, E* target, std::int64_t n) {
    if (stride == 1)
        std::memcpy(target, source, std::size_t(n) * sizeof(E));
    else if (stride == 0)
        std::fill_n(target, n, *source);
    else
        for (std::int64_t i = 0; i < n; ++i) target[i] = source[i * stride];
}

template <class E>
void spread_run(E* target, std::int64_t stride, const E* source, std::int64_t n) {
    if (stride == 1)
        std::memcpy(target, source, std::size_t(n) * sizeof(E));
    else
        for (std::int64_t i = 0; i < n; ++i) target[i * stride] = source[i];
}

/// Calls run(offset of the first element, count, dense index) for each innermost run that [start, start + n) touches.
template <class Run>
void for_runs(const Walk& walk, std::int64_t start, std::int64_t n, Run&& run) {
    std::int64_t index[max_rank], offset = 0, left = start;
    const int last = walk.rank - 1;
    for (int i = last; i >= 0; --i) {
        index[i] = left % walk.shape[i];
        left /= walk.shape[i];
        offset += index[i] * walk.strides[i];
    }
    for (std::int64_t done = 0; done < n;) {
        const std::int64_t count = std::min(n - done, walk.shape[last] - index[last]);
        run(offset, count, done);
        done += count;
        offset -= index[last] * walk.strides[last];
        index[last] = 0;
        for (int i = last - 1; i >= 0; --i) {
            offset += walk.strides[i];
            if (++index[i] < walk.shape[i]) break;
            offset -= walk.strides[i] * walk.shape[i];
            index[i] = 0;
        }
    }
}

template <class E>
void gather_as(const Walk& walk, const char* base, std::int64_t start, std::int64_t n, char* target) {
    const int last = walk.rank - 1;
    for_runs(walk, start, n, [&](std::int64_t offset, std::int64_t count, std::int64_t done) {
        copy_run(reinterpret_cast<const E*>(base) + offset, walk.strides[last], reinterpret_cast<E*>(target) + done,
                 count);
    });
}

template <class E>
void scatter_as(const Walk& walk, char* base, std::int64_t start, std::int64_t n, const char* source) {
    const int last = walk.rank - 1;
    for_runs(walk, start, n, [&](std::int64_t offset, std::int64_t count, std::int64_t done) {
        spread_run(reinterpret_cast<E*>(base) + offset, walk.strides[last], reinterpret_cast<const E*>(source) + done,
                   count);
    });
}

struct alignas(64) Buffer {
    char bytes[chunk_bytes];
};

/// One input of a formula, ready to be read chunk by chunk.
class Reader {
  public:
    Reader(const Operand& operand, const Shape& shape, DType as)
        : as_(as),
          from_(operand.tensor ? operand.tensor->dtype() : DType::f64),
          walk_(operand.tensor ? operand.tensor->layout().expand("elementwise", shape) : Layout()),
          base_(operand.tensor ? static_cast<const char*>(operand.tensor->address()) : nullptr),
          number_(operand.number) {
        constant_ = !operand.tensor || operand.tensor->numel() == 1;
        in_place_ = !constant_ && from_ == as && walk_.plain;
    }

    void fill(Buffer& buffer) const {
        if (!constant_) return;
        char element[8];
        convert(from_, as_, base_ ? static_cast<const void*>(base_) : static_cast<const void*>(&number_), element, 1);
        const std::size_t size = std::size_t(size_of(as_));
        for (std::int64_t i = 0; i < chunk; ++i) std::memcpy(buffer.bytes + std::size_t(i) * size, element, size);
    }
    const void* read(std::int64_t start, std::int64_t n, Buffer& buffer, Buffer& raw) const {
        if (constant_) return buffer.bytes;
        if (in_place_) return base_ + start * size_of(as_);
        if (from_ == as_) {
            gather(walk_, base_, size_of(as_), start, n, buffer.bytes);
        } else if (walk_.plain) {
            convert(from_, as_, base_ + start * size_of(from_), buffer.bytes, n);
        } else {
            gather(walk_, base_, size_of(from_), start, n, raw.bytes);
            convert(from_, as_, raw.bytes, buffer.bytes, n);
        }
        return buffer.bytes;
    }

  private:
    DType as_, from_;
    Walk walk_;
    const char* base_;
    double number_;
    bool constant_, in_place_;
};

}  // namespace

void gather(const Walk& walk, const char* base, int size, std::int64_t start, std::int64_t n, char* target) {
    switch (size) {
        case 1:
            return gather_as<std::uint8_t>(walk, base, start, n, target);
        case 2:
            return gather_as<std::uint16_t>(walk, base, start, n, target);
        case 4:
            return gather_as<std::uint32_t>(walk, base, start, n, target);
        default:
            return gather_as<std::uint64_t>(walk, base, start, n, target);
    }
}

void scatter(const Walk& walk, char* base, int size, std::int64_t start, std::int64_t n, const char* source) {
    switch (size) {
        case 1:
            return scatter_as<std::uint8_t>(walk, base, start, n, source);
        case 2:
            return scatter_as<std::uint16_t>(walk, base, start, n, source);
        case 4:
            return scatter_as<std::uint32_t>(walk, base, start, n, source);
        default:
            return scatter_as<std::uint64_t>(walk, base, start, n, source);
    }
}

namespace {

bool plain_arrays(DType in, DType out, std::span<const Operand> inputs, const Tensor& y) {
    if (y.dtype() != out || !y.is_contiguous()) return false;
    for (const Operand& operand : inputs)
        if (!operand.tensor || operand.tensor->dtype() != in || operand.tensor->shape() != y.shape() ||
            !operand.tensor->is_contiguous())
            return false;
    return true;
}

}  // namespace

void elementwise(Formula formula, DType in, DType out, std::span<const Operand> inputs, const Tensor& y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    if (plain_arrays(in, out, inputs, y)) {  // the usual case goes without the machinery
        const void* arrays[3] = {};
        for (std::size_t i = 0; i < inputs.size(); ++i) arrays[i] = inputs[i].tensor->address();
        char* target = static_cast<char*>(y.address());
        return parallel_for(n, 16 * chunk, [&](std::int64_t begin, std::int64_t end) {
            const void* parts[3];
            for (std::size_t i = 0; i < inputs.size(); ++i)
                parts[i] = static_cast<const char*>(arrays[i]) + begin * size_of(in);
            formula(parts, target + begin * size_of(out), end - begin);
        });
    }
    std::array<std::optional<Reader>, 3> readers;
    for (std::size_t i = 0; i < inputs.size(); ++i) readers[i].emplace(inputs[i], y.shape(), in);
    const Walk target(y.layout());
    char* base = static_cast<char*>(y.address());
    const bool in_place = target.plain && y.dtype() == out;
    parallel_for((n + chunk - 1) / chunk, 16, [&](std::int64_t first, std::int64_t last) {
        Buffer buffers[3], raw, result;
        const void* arrays[3] = {};
        for (std::size_t i = 0; i < inputs.size(); ++i) readers[i]->fill(buffers[i]);
        for (std::int64_t c = first; c < last; ++c) {
            const std::int64_t start = c * chunk, count = std::min(chunk, n - start);
            for (std::size_t i = 0; i < inputs.size(); ++i) arrays[i] = readers[i]->read(start, count, buffers[i], raw);
            if (in_place) {
                formula(arrays, base + start * size_of(out), count);
                continue;
            }
            formula(arrays, result.bytes, count);
            const char* done = result.bytes;
            if (y.dtype() != out) convert(out, y.dtype(), result.bytes, raw.bytes, count), done = raw.bytes;
            scatter(target, base, size_of(y.dtype()), start, count, done);
        }
    });
}

}  // namespace gradus::kernels::cpu
