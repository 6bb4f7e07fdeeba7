// The op table: a row per op of autograd/ops.h, which the tests cross with dtypes, layouts and sizes.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/ops.h"
#include "gradus/tests/reference.h"

namespace gradus::tests {

using reference::Array;
using reference::Sizes;
using Tensors = std::vector<Tensor>;
using Arrays = std::vector<Array>;

/// What an op is fed with.
struct Operand {
    enum Kind { number, boolean, index } kind = number;
    double low = -2, high = 2;       ///< numbers are drawn from [low, high), indices from [0, high)
    std::vector<double> avoid = {};  ///< numbers stay 0.1 away from these: kinks and poles
    bool gradient = true;            ///< does a gradient flow to it?
};
inline Operand number(double low = -2, double high = 2, std::vector<double> avoid = {}) {
    return {Operand::number, low, high, std::move(avoid), true};
}
inline Operand constant(double low, double high) { return {Operand::number, low, high, {}, false}; }
inline Operand mask() { return {Operand::boolean, 0, 2, {}, false}; }
inline Operand indices(std::int64_t below) { return {Operand::index, 0, double(below), {}, false}; }

struct OpRow {
    std::string name;  ///< as in ops.h; after a space what is special about this row
    std::vector<Operand> operands;
    std::vector<std::vector<Sizes>> shapes;  ///< of all operands, one entry per case
    std::function<Tensor(const Tensors&)> call;
    std::function<Array(const Arrays&)> expect;  ///< empty: no value to compare with, its gradient is still checked
    bool gradient = true;                        ///< is there one?
    bool second_order = true;                    ///< may the gradient be differentiated again?
    bool integers = false;                       ///< takes i64 and i32 too
    DType (*result)(DType) = nullptr;            ///< the result's dtype; null: that of the first operand
    std::int64_t length = 1;                     ///< of the sums behind an element, for the tolerance
    int steps = 1;                               ///< ops it is composed of, each of which rounds

    OpRow& no_gradient() { return gradient = second_order = false, *this; }
    OpRow& with_integers() { return integers = true, *this; }
    OpRow& gives(DType (*type)(DType)) { return result = type, *this; }
    OpRow& sums(std::int64_t n) { return length = n, *this; }
};

inline DType boolean_result(DType) { return DType::boolean; }
inline DType index_result(DType) { return DType::i64; }
inline DType sum_result(DType type) { return is_floating(type) ? type : DType::i64; }
inline DType float_result(DType type) { return is_floating(type) ? type : DType::f32; }

/// Rows under construction.
class OpRows {
  public:
    OpRow& add(OpRow row) { return rows_.emplace_back(std::move(row)); }
    std::vector<OpRow> take() { return std::move(rows_); }

  private:
    std::vector<OpRow> rows_;
};

std::vector<OpRow> pointwise_rows();
std::vector<OpRow> reduce_rows();
std::vector<OpRow> view_rows();     ///< views and copies
std::vector<OpRow> product_rows();  ///< matmul, softmax and norms, attention
std::vector<OpRow> index_rows();    ///< indexing, selection, dropout
std::vector<OpRow> loss_rows();
const std::vector<OpRow>& op_table();

/// How an operand lies in memory.
enum class Lay { contiguous, transposed, stepped, expanded };
inline constexpr Lay all_lays[] = {Lay::contiguous, Lay::transposed, Lay::stepped, Lay::expanded};
const char* name_of(Lay lay);
/// Does a shape know this layout? (transposed needs two axes, the others one)
bool possible(Lay lay, const Sizes& shape);
/// The shape of the row-major tensor from which `laid` makes one of `shape`.
Sizes base_shape(Lay lay, const Sizes& shape);
Tensor laid(Lay lay, const Tensor& base, const Sizes& shape);

/// Fixed random elements for an operand, the same for the same salt.
Tensor draw(const Operand& operand, const Sizes& shape, DType dtype, std::uint64_t salt);
Array plain(const Tensor& x);
Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype);

}  // namespace gradus::tests
