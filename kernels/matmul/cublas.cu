// Products by cuBLAS: the row-major y = a b is, read column by column, yᵀ = bᵀ aᵀ.
#include "gradus/kernels/matmul/cublas.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "gradus/core/cublas.h"
#include "gradus/kernels/memory.h"
#include "gradus/kernels/pointwise.h"

namespace gradus::kernels::cuda {
namespace {

MatmulBackend backend_from_environment() {
    const char* text = std::getenv("GRADUS_MATMUL");
    const std::string_view value = text ? text : "";
    check(value.empty() || value == "own" || value == "cublas", "GRADUS_MATMUL: expected own or cublas: got \"", value,
          "\"");
    return value == "cublas" ? MatmulBackend::cublas : MatmulBackend::own;
}
std::atomic<MatmulBackend>& backend() {
    static std::atomic<MatmulBackend> now = backend_from_environment();
    return now;
}

Tensor copied(const Tensor& x) {
    const Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
    cuda::copy(x, copy);
    return copy;
}

constexpr std::int64_t most = std::numeric_limits<int>::max();

/// The one step from matrix to matrix of a batch; false where there is none.
bool batch_stride(const Layout& x, std::int64_t& stride) {
    std::int64_t count = 1;
    stride = 0;
    for (int axis = x.rank() - 3; axis >= 0; --axis) {
        if (x.shape[axis] == 1) continue;
        if (count == 1)
            stride = x.strides[axis];
        else if (x.strides[axis] != stride * count)
            return false;
        count *= x.shape[axis];
    }
    return true;
}

/// How cuBLAS reads a row-major (rows, columns): as its transpose, so that what lies row by row is "as it is".
bool readable(const Tensor& x, BlasMatrix& matrix) {
    const std::int64_t rows = x.size(-2), columns = x.size(-1);
    const std::int64_t down = x.strides()[x.rank() - 2], right = x.strides()[x.rank() - 1];
    const bool plain = (columns == 1 || right == 1) && (rows == 1 || down >= columns);
    const bool across = (rows == 1 || down == 1) && (columns == 1 || right >= rows);
    const std::int64_t leading = plain ? (rows == 1 ? columns : down) : (columns == 1 ? rows : right);
    matrix = {x.address(), !plain, int(leading), 0};
    return (plain || across) && leading <= most && batch_stride(x.layout(), matrix.stride);
}

}  // namespace

MatmulBackend matmul_backend() { return backend().load(std::memory_order_relaxed); }
MatmulBackendScope::MatmulBackendScope(MatmulBackend wanted) : before_(backend().exchange(wanted)) {}
MatmulBackendScope::~MatmulBackendScope() { backend() = before_; }

bool multiply_by_cublas(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& y, bool accumulate,
                        Epilogue epilogue) {
    const std::int64_t m = y.size(-2), n = y.size(-1), k = a.size(-1);
    if (!is_floating(y.dtype()) || m > most || n > most || k > most || k == 0) return false;
    const std::int64_t batch = y.numel() / (m * n);
    if (batch > most) return false;
    BlasProduct product{y.dtype(), int(n), int(m), int(k), int(batch), {}, {}, y.address(), int(n), m * n, accumulate};
    Tensor left = a, right = b;  // copies live until the work is given
    if (!readable(right, product.a)) right = copied(b), readable(right, product.a);
    if (!readable(left, product.b)) left = copied(a), readable(left, product.b);
    if (bias.defined()) {
        check(!accumulate, "matmul: a bias and a sum are not added at once");
        cuda::copy(bias.with_layout(bias.layout().expand("linear", y.shape())), y);
        product.accumulate = true;
    }
    blas_product(y.device(), product);
    if (epilogue == Epilogue::relu) cuda::unary<pointwise::Relu>(y, y);
    return true;
}

}  // namespace gradus::kernels::cuda
