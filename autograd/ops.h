// The vocabulary: every public op, one line of math and shapes each. Rules stand beside the ops, in the .cpp of the
// family.
//
// Conventions. An op returns a new tensor (or a small struct of several) and writes nothing else. Operands broadcast
// aligned at the right. Negative axes count from the end. Two tensors must lie on one device. dtypes: bool < u8 < i32 <
// i64 < floats; an integer with a float gives the float, f16 with bf16 gives f32, a 0-d tensor or a host number does
// not raise the class of the other operand. NaN propagates. Gradients flow through floating tensors only.
#pragma once

#include <optional>
#include <vector>

#include "gradus/core/random.h"
#include "gradus/core/tensor.h"

namespace gradus {

class Event;

// ---- creation ----
Tensor zeros(const Shape& shape, DType dtype, Device device);
Tensor ones(const Shape& shape, DType dtype, Device device);
Tensor full(const Shape& shape, double value, DType dtype, Device device);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);
Tensor arange(double start, double stop, double step, DType dtype, Device device);  ///< start, start + step, ... < stop
inline Tensor arange(std::int64_t n, DType dtype, Device device) { return arange(0, double(n), 1, dtype, device); }
Tensor eye(std::int64_t n, DType dtype, Device device);  ///< (n, n), ones on the diagonal
Tensor eye(std::int64_t rows, std::int64_t columns, DType dtype, Device device);
/// Drawn from [low, high), which a 16-bit float may round up to high; the generator's next draw, or the thread's where
/// none is given. Floating dtypes.
Tensor uniform(const Shape& shape, double low, double high, DType dtype, Device device, Generator* generator = nullptr);
/// Drawn from N(mean, deviation²).
Tensor normal(const Shape& shape, double mean, double deviation, DType dtype, Device device,
              Generator* generator = nullptr);

// ---- views: no copy, same storage ----
Tensor view(const Tensor& x,
            const Shape& shape);  ///< the same elements under another shape; throws where a copy would be needed
Tensor reshape(const Tensor& x, const Shape& shape);  ///< a view where possible, else a copy; one size may be -1
Tensor permute(const Tensor& x, const Axes& order);
Tensor transpose(const Tensor& x, int axis_a = -2, int axis_b = -1);
Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t stop,
             std::int64_t step = 1);  ///< [start:stop:step], step > 0; bounds clamp as in Python
Tensor select(const Tensor& x, int axis, std::int64_t index);  ///< one index of an axis; the axis goes
Tensor expand(const Tensor& x, const Shape& shape);            ///< axes of size 1 stretched, stride 0
Tensor broadcast_to(const Tensor& x, const Shape& shape);      ///< the same as expand
Tensor squeeze(const Tensor& x, const Axes& axes = {});        ///< drops axes of size 1 (all of them, or those named)
Tensor unsqueeze(const Tensor& x, int axis);                   ///< a new axis of size 1 at this place of the result
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
std::vector<Tensor> split(const Tensor& x, int parts,
                          int axis = 0);  ///< balanced: sizes differ by at most one, exactly `parts` views
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis = 0);
std::vector<Tensor> chunk(const Tensor& x, int parts,
                          int axis = 0);         ///< pieces of ceil(n / parts), as PyTorch: there may be fewer
Tensor flip(const Tensor& x, const Axes& axes);  ///< a copy with these axes reversed
Tensor detach(const Tensor& x);                  ///< the same storage without a past

// ---- copies ----
Tensor contiguous(const Tensor& x);         ///< x itself when row-major already, else a copy
Tensor clone(const Tensor& x);              ///< always a copy, row-major
Tensor to(const Tensor& x, Device device);  ///< x itself when it is there already
Tensor cast(const Tensor& x, DType dtype);  ///< floats to integers truncate; anything to bool is x != 0
Tensor cat(const std::vector<Tensor>& xs, int axis = 0);
Tensor stack(const std::vector<Tensor>& xs, int axis = 0);
/// before/after: how many elements to add at each end of each axis; negative ones cut.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after,
           double value = 0);
Tensor repeat(const Tensor& x, const Shape& times);  ///< tiles the tensor

// ---- pointwise, one operand ----
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);       ///< 1 / √x
Tensor reciprocal(const Tensor& x);  ///< 1 / x
Tensor square(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);    ///< 1 / (1 + e⁻ˣ)
Tensor relu(const Tensor& x);       ///< max(x, 0); slope 0 at 0
Tensor gelu(const Tensor& x);       ///< x Φ(x), Φ by erf
Tensor gelu_tanh(const Tensor& x);  ///< x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))
Tensor silu(const Tensor& x);       ///< x sigmoid(x)
Tensor softplus(const Tensor& x);   ///< log(1 + eˣ)
Tensor erf(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);                           ///< halves to even
Tensor clamp(const Tensor& x, double low, double high);  ///< slope 0 at and beyond both bounds
Tensor is_nan(const Tensor& x);                          ///< bool
Tensor is_inf(const Tensor& x);                          ///< bool
Tensor is_finite(const Tensor& x);                       ///< bool

// ---- pointwise, two operands ----
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  ///< true division: integers give f32
Tensor pow(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< a tie gives each operand half the slope
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);
Tensor pow(const Tensor& a, double b);
Tensor maximum(const Tensor& a, double b);
Tensor minimum(const Tensor& a, double b);
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }

// ---- comparisons and logic: results are bool ----
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, double b);
Tensor not_equal(const Tensor& a, double b);
Tensor less(const Tensor& a, double b);
Tensor less_equal(const Tensor& a, double b);
Tensor greater(const Tensor& a, double b);
Tensor greater_equal(const Tensor& a, double b);
Tensor logical_not(const Tensor& x);  ///< bool operands only
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);

// ---- selection ----
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  ///< a where true, else b; bool condition
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
Tensor masked_fill(const Tensor& x, const Tensor& mask,
                   double value);  ///< value where the bool mask is true; value must fit the dtype
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);  ///< zeros above the diagonal of the last two axes
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);  ///< zeros below it

// ---- reductions: no axes means all; keep leaves axes of size 1 ----
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keep = false);   ///< bool and i32, u8 add up in i64
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keep = false);  ///< floating; an empty one is NaN
Tensor var(const Tensor& x, const Axes& axes = {}, bool keep = false,
           bool unbiased = true);                                       ///< Σ(x - x̄)² / (n - 1), or / n
Tensor max(const Tensor& x, const Axes& axes = {}, bool keep = false);  ///< slope to the first largest element
Tensor min(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor argmax(const Tensor& x, int axis,
              bool keep = false);  ///< i64; the first of equal ones; the first NaN where there is one
Tensor argmin(const Tensor& x, int axis, bool keep = false);
Tensor any(const Tensor& x, const Axes& axes = {}, bool keep = false);  ///< bool operands only
Tensor all(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor norm(const Tensor& x, const Axes& axes = {}, bool keep = false);  ///< √Σx²; slope 0 at 0
Tensor cumsum(const Tensor& x, int axis);

// ---- products ----
/// (…, m, k) (…, k, n) -> (…, m, n); batch axes broadcast; a vector on either side counts as a row or column that goes
/// again.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x wᵀ + bias: (…, in) (out, in) (out) -> (…, out). The bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  ///< relu(linear(…)) in one pass

// ---- rows ----
Tensor softmax(const Tensor& x, int axis);  ///< a row that is all -inf gives NaN
Tensor log_softmax(const Tensor& x, int axis);
/// softmax over the axis among the elements where `visible` (bool, broadcasts to x) is true; a row that sees nothing is
/// all zeros with zero gradient.
Tensor masked_softmax(const Tensor& x, const Tensor& visible, int axis);
/// (x - x̄) / √(var + eps) · weight + bias over the trailing axes, as many as `weight` has; weight and bias may be
/// undefined (then the last axis).
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& weight = {},
                double eps = 1e-5);  ///< x / √(mean x² + eps) · weight, last axis

// ---- indexing: index tensors are i64 or i32; an index out of range throws naming position, value and range, on a card
// when the host next waits for it (GRADUS_SYNC=1: at once) ----
Tensor embedding(const Tensor& ids, const Tensor& table,
                 std::int64_t padding_idx = -1);  ///< (…) (n, d) -> (…, d); the padding row never gets a gradient
Tensor gather(const Tensor& x, int axis, const Tensor& index);  ///< out[i][j] = x[index[i][j]][j] for axis 0
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index,
                   const Tensor& source);                             ///< a copy of x with source added at index
Tensor index_select(const Tensor& x, int axis, const Tensor& index);  ///< whole slices of an axis, index 1-d
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);
struct TopK {
    Tensor values, indices;
};
TopK topk(const Tensor& x, std::int64_t k, int axis = -1,
          bool largest = true);  ///< sorted, equal ones by index; indices are i64

// ---- random ----
/// x / (1 - p) where kept, 0 where dropped; p = 1 gives zeros. The same draw gives the same mask on every device and
/// thread count.
Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);
/// layer_norm(residual + dropout(x, p), weight, bias, eps) in one pass, with dropout's draw and mask: what a residual
/// sublayer ends in. x and residual have one shape, weight and bias that of the trailing axes; p counts nothing outside
/// training. Throws where the shapes differ, p lies outside [0, 1] or eps is negative.
Tensor dropout_add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                              double p, double eps = 1e-5, bool training = true, Generator* generator = nullptr);

// ---- attention ----
struct AttentionOptions {
    Tensor mask = {};           ///< bool, true = may be seen; broadcasts to (B, H, T, S)
    Tensor additive_mask = {};  ///< floating, added to the scores (0 and -inf); broadcasts likewise
    Tensor key_lengths = {};    ///< integers (B): only the first so many keys of a batch item may be seen
    bool causal = false;        ///< query t sees keys 0 … t + S - T
    double dropout = 0;         ///< on the weights; 0 outside training
    double scale = 0;           ///< 0 means 1/√D
    Generator* generator = nullptr;
};
/// softmax(q kᵀ · scale, masked) v, fused: (B, H, T, D) (B, H, S, D) (B, H, S, E) -> (B, H, T, E). A query that sees
/// nothing gives zeros.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// ---- losses ----
enum class Reduction { none, sum, mean };
struct CrossEntropyOptions {
    std::int64_t ignore_index = -100;  ///< rows with this target count nothing, in value, gradient and divisor
    double label_smoothing = 0;
    Tensor class_weights = {};  ///< (C) or undefined
    Reduction reduction = Reduction::mean;
};
/// -Σ over kept rows of w log softmax(x)_target, divided by Σ w for mean. x is (N, C) or (N, C, …), class axis 1;
/// targets (N, …) integers, or probabilities of x's shape. All rows ignored: mean is NaN with zero gradient, sum is 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});
struct LossSum {
    Tensor sum;    ///< 0-d, carries the gradient
    Tensor count;  ///< 0-d f32: the divisor that a mean would take
};
LossSum cross_entropy_sum(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options = {});
// Losses below refuse shapes that only match by broadcasting.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor bce_loss(
    const Tensor& x, const Tensor& target,
    Reduction reduction = Reduction::mean);  ///< logs clamped at -100; reads the range of x, so waits on a card
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor gaussian_kl(const Tensor& mean, const Tensor& log_variance,
                   Reduction reduction = Reduction::sum);  ///< -½ (1 + lv - μ² - e^lv), against N(0, 1)

// ---- writes in place: bump the version; refuse expanded destinations; not recorded ----
void copy_(const Tensor& destination, const Tensor& source);
/// copy_ between page-locked memory of the CPU (Tensor::empty_pinned) and a card, both row-major, of one shape and
/// dtype, which goes on while the host does: until the event is reached the host must not write the source or read the
/// destination. copy_ and `to` need no such care.
Event copy_async_(const Tensor& destination, const Tensor& source);
void fill_(const Tensor& destination, double value);

}  // namespace gradus
