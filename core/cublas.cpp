#include "gradus/core/cublas.h"

#include <mutex>
#include <vector>

#include "gradus/core/error.h"
#include "gradus/core/tensor.h"
#include "gradus/core/thread_state.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cuda.h"
#if defined(GRADUS_EMULATED)
#include "gradus/core/emulation/blas.h"
#else
#include <dlfcn.h>
#endif

namespace gradus {
namespace {

// The part of cublas_v2.h that is used here: the names and numbers of cuBLAS 11 and later.
using Handle = void*;
struct Functions {
    int (*create)(Handle*);
    int (*set_stream)(Handle, cudaStream_t);
    int (*set_workspace)(Handle, void*, std::size_t);
    int (*gemm)(Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                int a_type, int a_leading, long long a_stride, const void* b, int b_type, int b_leading,
                long long b_stride, const void* beta, void* c, int c_type, int c_leading, long long c_stride, int batch,
                int compute, int algorithm);
};
constexpr int as_it_is = 0, transposed = 1;                 // cublasOperation_t
constexpr int in_f32 = 69, in_f32_of_16 = 68, in_f64 = 70;  // cublasComputeType_t: 69 is the pedantic one, without TF32
constexpr int algorithm_of_its_choice = -1;
constexpr std::size_t workspace_bytes = std::size_t(32) << 20;  // what cuBLAS wants on Hopper

int number_of(DType type) {  // cudaDataType_t
    switch (type) {
        case DType::f32:
            return 0;
        case DType::f64:
            return 1;
        case DType::f16:
            return 2;
        case DType::bf16:
            return 14;
        default:
            fail("cublas: has no product of ", type);
    }
}

#if defined(GRADUS_EMULATED)
Functions load() {
    return {emulation::blas_create, emulation::blas_set_stream, emulation::blas_set_workspace, emulation::blas_gemm};
}
#else
Functions load() {
    const char* const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void* library = nullptr;
    for (const char* name : names)
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    check(library, "cublas: GRADUS_MATMUL=cublas asks for it, and ", names[0], ", ", names[1], " and ", names[2],
          " were not found: install it, set LD_LIBRARY_PATH, or unset GRADUS_MATMUL");
    const auto find = [&]<class F>(const char* name, F*& function) {
        function = reinterpret_cast<F*>(dlsym(library, name));
        check(function, "cublas: this library lacks ", name, ": 11 or newer is needed");
    };
    Functions functions{};
    find("cublasCreate_v2", functions.create);
    find("cublasSetStream_v2", functions.set_stream);
    find("cublasSetWorkspace_v2", functions.set_workspace);
    find("cublasGemmStridedBatchedEx", functions.gemm);
    return functions;
}
#endif

const Functions& functions() {
    static const Functions* all = new Functions(load());
    return *all;
}

void blas_check(int status, const char* call) {
    check(status == 0, "cublas: ", call, " failed with the status ", status);
}

/// Handles of a card that no call has at the moment; never destroyed.
struct FreeHandles {
    std::mutex mutex;
    std::vector<Handle> list;
    std::size_t made = 0;  ///< handles in all: there is room for each, so that giving one back needs no memory
};
FreeHandles& free_handles(Device device) {
    static FreeHandles* all = new FreeHandles[max_cards];
    return all[device.index];
}

/// One call's handle.
class Lease {
  public:
    explicit Lease(Device device) : free_(free_handles(device)) {
        {
            const std::lock_guard lock(free_.mutex);
            if (!free_.list.empty()) handle_ = free_.list.back(), free_.list.pop_back();
        }
        if (handle_) return;
        blas_check(functions().create(&handle_), "cublasCreate");
        const std::lock_guard lock(free_.mutex);
        free_.list.reserve(++free_.made);
    }
    ~Lease() {
        const std::lock_guard lock(free_.mutex);
        free_.list.push_back(handle_);  // has room: see the constructor
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Handle get() const { return handle_; }

  private:
    FreeHandles& free_;
    Handle handle_ = nullptr;
};

}  // namespace

void blas_product(Device device, const BlasProduct& p) {
    const DeviceGuard guard(device);
    const Lease handle(device);
    // Of the stream's own pool: the next product of another stream gets other memory, of this one the same.
    const Tensor workspace = Tensor::empty({std::int64_t(workspace_bytes)}, DType::u8, device);
    blas_check(functions().set_stream(handle.get(), current_cuda_stream(device)), "cublasSetStream");
    blas_check(functions().set_workspace(handle.get(), workspace.address(), workspace_bytes), "cublasSetWorkspace");
    const int type = number_of(p.dtype);
    const double one = 1, beta = p.accumulate;
    const float one_in_f32 = 1, beta_in_f32 = p.accumulate;
    const bool wide = p.dtype == DType::f64;
    const auto number = [&](const double& x, const float& y) -> const void* {
        return wide ? static_cast<const void*>(&x) : &y;
    };
    blas_check(functions().gemm(handle.get(), p.a.transposed ? transposed : as_it_is,
                                p.b.transposed ? transposed : as_it_is, p.m, p.n, p.k, number(one, one_in_f32),
                                p.a.data, type, p.a.leading, p.a.stride, p.b.data, type, p.b.leading, p.b.stride,
                                number(beta, beta_in_f32), p.c, type, p.c_leading, p.c_stride, p.batch,
                                wide                    ? in_f64
                                : p.dtype == DType::f32 ? in_f32
                                                        : in_f32_of_16,
                                algorithm_of_its_choice),
               "cublasGemmStridedBatchedEx");
}

}  // namespace gradus
#else

namespace gradus {
void blas_product(Device device, const BlasProduct&) { fail("cublas: this build has no ", device); }
}  // namespace gradus
#endif
