// A double of the few functions of cuBLAS that are called, with its numbers and its conditions.
#pragma once

#include <cstddef>

#include "gradus/core/emulation/runtime.h"

namespace gradus::emulation {

// Each returns cublasStatus_t: 0 success, 1 not initialised, 7 invalid value, 15 not supported.
int blas_create(void** handle);
int blas_set_stream(void* handle, cudaStream_t stream);
int blas_set_workspace(void* handle, void* workspace, std::size_t bytes);
/// cublasGemmStridedBatchedEx: c = alpha op(a) op(b) + beta c, column-major. Types are cudaDataType_t (all three
/// alike), compute is cublasComputeType_t. Runs as work of the handle's stream.
int blas_gemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
              int a_type, int a_leading, long long a_stride, const void* b, int b_type, int b_leading,
              long long b_stride, const void* beta, void* c, int c_type, int c_leading, long long c_stride, int batch,
              int compute, int algorithm);

}  // namespace gradus::emulation
