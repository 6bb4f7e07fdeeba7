#include "gradus/kernels/matmul.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <type_traits>

#include "gradus/kernels/gemm.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/parallel.h"

namespace gradus::kernels {
namespace {

using cpu::Matrix;
using cpu::multiply;
using std::int64_t;

// ---- reading an operand ----

/// Where the matrix of each batch index starts.
class BatchOffsets {
  public:
    explicit BatchOffsets(const Layout& layout) {
        for (int axis = layout.rank() - 3; axis >= 0; --axis) {
            const int64_t size = layout.shape[axis], stride = layout.strides[axis];
            if (size == 1) continue;
            if (count_ > 0 && stride == strides_[count_ - 1] * sizes_[count_ - 1])
                sizes_[count_ - 1] *= size;
            else
                sizes_[count_] = size, strides_[count_++] = stride;
        }
    }
    int64_t operator[](int64_t index) const {
        if (count_ == 1) return index * strides_[0];
        int64_t offset = 0;
        for (int i = 0; i < count_; ++i) {
            offset += index % sizes_[i] * strides_[i];
            index /= sizes_[i];
        }
        return offset;
    }

  private:
    int64_t sizes_[max_rank], strides_[max_rank];  // innermost first, axes that follow each other merged
    int count_ = 0;
};

int64_t batch_size(const Layout& layout) {
    int64_t count = 1;
    for (int axis = 0; axis < layout.rank() - 2; ++axis) count *= layout.shape[axis];
    return count;
}

/// Can a product read the last two axes in place?
bool readable(const Layout& x) {
    const int64_t rows = x.shape[x.rank() - 2], columns = x.shape[x.rank() - 1];
    const int64_t down = x.strides[x.rank() - 2], right = x.strides[x.rank() - 1];
    return ((columns == 1 || right == 1) && (rows == 1 || down >= columns)) ||
           ((rows == 1 || down == 1) && (columns == 1 || right >= rows));
}

template <class T>
class Operand {
  public:
    explicit Operand(const Tensor& x) : kept_(x), offsets_(x.layout()) {
        const Layout& l = x.layout();
        const int64_t rows = l.shape[l.rank() - 2], columns = l.shape[l.rank() - 1];
        const int64_t down = l.strides[l.rank() - 2], right = l.strides[l.rank() - 1];
        const bool plain = (columns == 1 || right == 1) && (rows == 1 || down >= columns);
        first_ = {x.data<T>(), !plain, plain ? (rows == 1 ? columns : down) : (columns == 1 ? rows : right)};
    }
    Matrix<const T> operator[](int64_t batch) const {
        return {first_.data + offsets_[batch], first_.transposed, first_.leading};
    }

  private:
    Tensor kept_;
    BatchOffsets offsets_;
    Matrix<const T> first_;
};

/// x in another dtype and row-major. Batch axes of stride 0 stay so: an expanded operand is copied once.
Tensor packed(const Tensor& x, DType dtype) {
    Layout once = x.layout();
    for (int axis = 0; axis < x.rank() - 2; ++axis)
        if (once.strides[axis] == 0) once.shape[axis] = 1;
    const Tensor copy = Tensor::empty(once.shape, dtype, x.device());
    cpu::copy(x.with_layout(once), copy);
    return copy.with_layout(copy.layout().expand("matmul", x.shape()));
}

template <class T>
Operand<T> operand(const Tensor& x) {
    return Operand<T>(readable(x.layout()) ? x : packed(x, dtype_of<T>));
}

// ---- splitting ----

/// How one product is cut. The cut depends on the shape alone: with other pieces oneDNN would add in another order.
struct Cut {
    bool by_rows;
    int64_t pieces, length;  // of the axis that is cut
};

Cut cut(int64_t batch, int64_t m, int64_t n, int64_t k) {
    const bool by_rows = 2 * m >= n;
    const int64_t axis = by_rows ? m : n;
    // What a product costs, in flops: a thin one waits for the memory of its wide operand.
    const double work = std::max(2.0 * double(m) * double(n) * double(k), 16.0 * double(std::max(m, n)) * double(k));
    int64_t pieces = 1;
    while (batch * pieces < 16 && work / double(2 * pieces) >= 2e6 && axis / (2 * pieces) >= (pieces == 1 ? 32 : 192))
        pieces *= 2;
    const int64_t length = ((axis + pieces - 1) / pieces + 15) / 16 * 16;
    return {by_rows, (axis + length - 1) / length, length};
}

/// y = a b or y += a b, piece by piece. Where there is a bias, finish(part of y, its rows, its columns, its first
/// column) runs after each part of at most `width` columns, while it is in the cache.
template <class T, class Finish>
void multiply_batch(const Tensor& a, const Tensor& b, const Tensor& y, bool accumulate, int64_t width,
                    const Finish& finish) {
    const int64_t m = y.size(-2), n = y.size(-1), k = a.size(-1), batch = batch_size(y.layout());
    if (y.numel() == 0) return;
    T* out = y.data<T>();
    if (k == 0) {
        if (!accumulate) std::fill(out, out + batch * m * n, T(0));
        for (int64_t i = 0; i < batch; ++i) finish(Matrix<T>{out + i * m * n, false, n}, m, n, int64_t(0));
        return;
    }
    const Operand<T> left = operand<T>(a), right = operand<T>(b);
    const Cut c = cut(batch, m, n, k);
    const auto piece = [&](int64_t index) {
        const int64_t item = index / c.pieces, from = index % c.pieces * c.length;
        const int64_t row = c.by_rows ? from : 0, first = c.by_rows ? 0 : from;
        const int64_t rows = c.by_rows ? std::min(c.length, m - row) : m,
                      end = c.by_rows ? n : std::min(n, first + c.length);
        const Matrix<T> band = Matrix<T>{out + item * m * n, false, n}.rows_from(row);
        const Matrix<const T> x = left[item].rows_from(row), w = right[item];
        for (int64_t j = first; j < end; j += width) {
            const int64_t columns = std::min(width, end - j);
            multiply(rows, columns, k, x, w.columns_from(j), band.columns_from(j), accumulate);
            finish(band.columns_from(j), rows, columns, j);
        }
    };
    if (c.pieces > 1) return parallel_tasks(batch * c.pieces, piece);
    const double work = 2.0 * double(m) * double(n) * double(k) + 2000;  // an item costs something even when tiny
    parallel_for(batch, std::max<int64_t>(1, int64_t(2e6 / work)), [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) piece(i);
    });
}

bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }

template <class F>
void visit_product(const char* op, DType type, F&& f) {
    visit(type, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, bool> || sizeof(T) == 2)
            fail(op, ": has no product of ", type);
        else
            f(zero);
    });
}

}  // namespace

void cpu::matmul(const Tensor& a, const Tensor& b, const Tensor& y, bool accumulate) {
    assert(y.is_contiguous() && a.dtype() == y.dtype() && b.dtype() == y.dtype());
    if (is_half(y.dtype())) {
        const Tensor wide = accumulate ? packed(y, DType::f32) : Tensor::empty(y.shape(), DType::f32, y.device());
        matmul(packed(a, DType::f32), packed(b, DType::f32), wide, accumulate);
        return cpu::copy(wide, y);
    }
    visit_product("matmul", y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        multiply_batch<T>(a, b, y, accumulate, y.size(-1), [](const Matrix<T>&, int64_t, int64_t, int64_t) {});
    });
}

void cpu::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, const Tensor& y) {
    const Tensor transposed = weight.with_layout(weight.layout().permute({1, 0}));
    const bool relu = epilogue == Epilogue::relu;
    if (!bias.defined() && !relu) return matmul(x, transposed, y, false);
    if (is_half(y.dtype())) {
        const Tensor wide = Tensor::empty(y.shape(), DType::f32, y.device());
        cpu::linear(packed(x, DType::f32), packed(weight, DType::f32), bias.defined() ? packed(bias, DType::f32) : bias,
                    epilogue, wide);
        return cpu::copy(wide, y);
    }
    const Tensor row = !bias.defined() || bias.is_contiguous() ? bias : packed(bias, bias.dtype());
    visit_product("linear", y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* values = row.defined() ? row.data<T>() : nullptr;
        constexpr int64_t width = 1024;
        multiply_batch<T>(x, transposed, y, false, width,
                          [&](const Matrix<T>& part, int64_t rows, int64_t columns, int64_t first) {
                              for (int64_t i = 0; i < rows; ++i) {
                                  T* out = part.data + i * part.leading;
                                  const T* added = values ? values + first : nullptr;
                                  for (int64_t j = 0; added && j < columns; ++j) out[j] = T(out[j] + added[j]);
                                  if constexpr (std::is_floating_point_v<T>)
                                      for (int64_t j = 0; relu && j < columns; ++j)
                                          out[j] = out[j] < T(0) ? T(0) : out[j];
                              }
                          });
    });
}

}  // namespace gradus::kernels
