#include "gradus/kernels/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "gradus/core/error.h"
#include "gradus/kernels/parallel.h"

#if GRADUS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif
#if GRADUS_LIBGOMP
extern "C" void omp_set_num_threads(int);
extern "C" int omp_get_max_threads(void);
#endif

namespace gradus::kernels::cpu {
namespace {

using std::int64_t;

/// oneDNN would start threads of its own inside each of ours. The setting is OpenMP's, per thread; the program's own is
/// put back.
class OneOpenmpThread {
#if GRADUS_LIBGOMP
  public:
    OneOpenmpThread() : before_(omp_get_max_threads()) {
        if (before_ != 1) omp_set_num_threads(1);
    }
    ~OneOpenmpThread() {
        if (before_ != 1) omp_set_num_threads(before_);
    }

  private:
    int before_;
#else
  public:
    OneOpenmpThread() {}
    ~OneOpenmpThread() {}
#endif
};

#if GRADUS_ONEDNN
void product(int64_t m, int64_t n, int64_t k, const Matrix<const float>& a, const Matrix<const float>& b,
             const Matrix<float>& y, bool accumulate) {
    const OneOpenmpThread one_thread;
    const SignalsBlocked undisturbed;
    const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                                            a.leading, b.data, b.leading, accumulate ? 1.0f : 0.0f, y.data, y.leading);
    check(status == dnnl_success, "matmul: oneDNN returned the status ", int(status));
}
#endif

template <class T, int order>
auto map(const Matrix<const T>& x, int64_t rows, int64_t columns) {
    using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, order>;
    return Eigen::Map<const Dense, 0, Eigen::OuterStride<>>(x.data, rows, columns, Eigen::OuterStride<>(x.leading));
}

template <class T>
requires std::is_floating_point_v<T>
void product(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& y,
             bool accumulate) {
    using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    Eigen::Map<Dense, 0, Eigen::OuterStride<>> out(y.data, m, n, Eigen::OuterStride<>(y.leading));
    const auto assign = [&](const auto& left, const auto& right) {
        if (accumulate)
            out.noalias() += left * right;
        else
            out.noalias() = left * right;
    };
    const auto with_left = [&](const auto& left) {
        if (b.transposed)
            assign(left, map<T, Eigen::ColMajor>(b, k, n));
        else
            assign(left, map<T, Eigen::RowMajor>(b, k, n));
    };
    if (a.transposed)
        with_left(map<T, Eigen::ColMajor>(a, m, k));
    else
        with_left(map<T, Eigen::RowMajor>(a, m, k));
}

template <class T>
requires std::is_integral_v<T>
void product(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& y,
             bool accumulate) {
    using U = std::make_unsigned_t<T>;  // wraps around, where a signed overflow would be undefined
    constexpr int64_t block = 256;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j0 = 0; j0 < n; j0 += block) {
            const int64_t width = std::min(block, n - j0);
            U line[block] = {};
            for (int64_t p = 0; p < k; ++p) {
                const U left = U(*(a.data + (a.transposed ? p * a.leading + i : i * a.leading + p)));
                const T* right = b.data + (b.transposed ? j0 * b.leading + p : p * b.leading + j0);
                const int64_t step = b.transposed ? b.leading : 1;
                for (int64_t j = 0; j < width; ++j) line[j] = U(line[j] + U(left * U(right[j * step])));
            }
            T* out = y.data + i * y.leading + j0;
            for (int64_t j = 0; j < width; ++j) out[j] = T(accumulate ? U(line[j] + U(out[j])) : line[j]);
        }
}

}  // namespace

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& y,
              bool accumulate) {
    product(m, n, k, a, b, y, accumulate);
}
template void multiply(int64_t, int64_t, int64_t, const Matrix<const float>&, const Matrix<const float>&,
                       const Matrix<float>&, bool);
template void multiply(int64_t, int64_t, int64_t, const Matrix<const double>&, const Matrix<const double>&,
                       const Matrix<double>&, bool);
template void multiply(int64_t, int64_t, int64_t, const Matrix<const int64_t>&, const Matrix<const int64_t>&,
                       const Matrix<int64_t>&, bool);
template void multiply(int64_t, int64_t, int64_t, const Matrix<const std::int32_t>&, const Matrix<const std::int32_t>&,
                       const Matrix<std::int32_t>&, bool);
template void multiply(int64_t, int64_t, int64_t, const Matrix<const std::uint8_t>&, const Matrix<const std::uint8_t>&,
                       const Matrix<std::uint8_t>&, bool);

}  // namespace gradus::kernels::cpu
