// The switch between the project's own products and cuBLAS.
#pragma once

#include "gradus/core/tensor.h"
#include "gradus/kernels/matmul.h"

namespace gradus::kernels::cuda {

enum class MatmulBackend { own, cublas };

/// What products of floats on cards run on: GRADUS_MATMUL=own|cublas, own without it, or a MatmulBackendScope.
MatmulBackend matmul_backend();

/// Sets the backend of the whole process for a scope, as tests and benchmarks do.
class MatmulBackendScope {
  public:
    explicit MatmulBackendScope(MatmulBackend backend);
    ~MatmulBackendScope();
    MatmulBackendScope(const MatmulBackendScope&) = delete;
    MatmulBackendScope& operator=(const MatmulBackendScope&) = delete;

  private:
    MatmulBackend before_;
};

/// kernels::matmul by cuBLAS, with a bias (n) or none and an epilogue. Operands that cuBLAS cannot read where they lie
/// are copied first. False, and nothing is done, for what it has no product of: integers, sizes beyond 32 bits, k = 0.
bool multiply_by_cublas(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& y, bool accumulate,
                        Epilogue epilogue);

}  // namespace gradus::kernels::cuda
