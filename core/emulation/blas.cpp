#include "gradus/core/emulation/blas.h"

#include <algorithm>
#include <cstdint>

#include "gradus/core/dtype.h"

namespace gradus::emulation {
namespace {

constexpr int success = 0, not_initialised = 1, invalid_value = 7, not_supported = 15;

struct BlasHandle {
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
};

/// One product as it was asked for.
template <class T>
struct Gemm {
    bool across_a, across_b;  // transposed
    int m, n, k, batch;
    double alpha, beta;
    const T* a;
    const T* b;
    T* c;
    std::int64_t a_leading, b_leading, c_leading, a_stride, b_stride, c_stride;

    void operator()() const {
        for (int item = 0; item < batch; ++item)
            for (int j = 0; j < n; ++j)
                for (int i = 0; i < m; ++i) {
                    const T* left = a + item * a_stride + (across_a ? i * a_leading : i);
                    const T* right = b + item * b_stride + (across_b ? j : j * b_leading);
                    double sum = 0;
                    for (int q = 0; q < k; ++q)
                        sum += double(left[across_a ? q : q * a_leading]) * double(right[across_b ? q * b_leading : q]);
                    T& out = c[item * c_stride + j * c_leading + i];
                    // beta = 0 does not read: what was there may be NaN.
                    out = T(alpha * sum + (beta == 0 ? 0.0 : beta * double(out)));
                }
    }
};

}  // namespace

int blas_create(void** handle) {
    *handle = new BlasHandle;
    return success;
}
int blas_set_stream(void* handle, cudaStream_t stream) {
    if (!handle) return not_initialised;
    static_cast<BlasHandle*>(handle)->stream = stream;
    return success;
}
int blas_set_workspace(void* handle, void* workspace, std::size_t) {
    if (!handle) return not_initialised;
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return invalid_value;
    static_cast<BlasHandle*>(handle)->workspace = workspace;
    return success;
}

int blas_gemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
              int a_type, int a_leading, long long a_stride, const void* b, int b_type, int b_leading,
              long long b_stride, const void* beta, void* c, int c_type, int c_leading, long long c_stride, int batch,
              int compute, int) {
    if (!handle) return not_initialised;
    const auto at_least = [](int leading, int rows) { return leading >= std::max(1, rows); };
    if (m < 0 || n < 0 || k < 0 || batch < 0 || !alpha || !beta || !at_least(a_leading, transpose_a ? k : m) ||
        !at_least(b_leading, transpose_b ? n : k) || !at_least(c_leading, m))
        return invalid_value;
    const bool wide = compute == 70 || compute == 71;
    if (a_type != b_type || a_type != c_type || wide != (a_type == 1)) return not_supported;
    if (m == 0 || n == 0 || batch == 0) return success;
    const auto number = [wide](const void* x) {
        return wide ? *static_cast<const double*>(x) : double(*static_cast<const float*>(x));
    };
    const auto start = [&](auto zero) {
        using T = decltype(zero);
        const Gemm<T> gemm{transpose_a != 0,
                           transpose_b != 0,
                           m,
                           n,
                           k,
                           batch,
                           number(alpha),
                           number(beta),
                           static_cast<const T*>(a),
                           static_cast<const T*>(b),
                           static_cast<T*>(c),
                           a_leading,
                           b_leading,
                           c_leading,
                           a_stride,
                           b_stride,
                           c_stride};
        // The workspace is written, as the real one is: whoever shares it with another stream finds out.
        unsigned char* const workspace = static_cast<unsigned char*>(static_cast<BlasHandle*>(handle)->workspace);
        enqueue_work(static_cast<BlasHandle*>(handle)->stream, [gemm, workspace] {
            if (workspace) std::fill_n(workspace, 64, static_cast<unsigned char>(0xff));
            gemm();
        });
        return success;
    };
    switch (a_type) {
        case 0:
            return start(float());
        case 1:
            return start(double());
        case 2:
            return start(float16());
        case 14:
            return start(bfloat16());
        default:
            return not_supported;
    }
}

}  // namespace gradus::emulation
