// CUDA's words for a C++ compiler: what a kernel's source sees when it is compiled for the emulator.
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradus/core/emulation/options.h"
#include "gradus/core/emulation/runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 {
    unsigned x, y, z;
};
template <class T, std::size_t alignment>
struct alignas(alignment) GradusVector2 {
    T x, y;
};
template <class T, std::size_t alignment>
struct alignas(alignment) GradusVector4 {
    T x, y, z, w;
};
using float2 = GradusVector2<float, 8>;
using double2 = GradusVector2<double, 16>;
using int2 = GradusVector2<int, 8>;
using uint2 = GradusVector2<unsigned, 8>;
using float4 = GradusVector4<float, 16>;
using int4 = GradusVector4<int, 16>;
using uint4 = GradusVector4<unsigned, 16>;
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

namespace gradus::emulation {

struct Thread {
    uint3 index;
    unsigned number, lane, warp;
};
struct Block {
    uint3 index;
    dim3 size, grid;
};
extern thread_local Thread* current_thread;
extern thread_local Block* current_block;

/// Where in the source something stands.
struct Place {
    const char* file;
    int line;
};

/// Ends the block with an error that names kernel, block, thread and place.
[[noreturn]] void trap(const char* what, Place place);
void barrier(Place place);
/// Each lane of the mask brings its argument; the last one to come runs operation(arguments of all lanes, mask) for the
/// warp. `ordered`: memory written before is seen by the others after, as __syncwarp promises and a shuffle does not.
using WarpOperation = void (*)(void** arguments, unsigned mask);
void collective(unsigned mask, WarpOperation operation, void* argument, bool ordered, const char* what, Place place);
void fence();
/// Shared memory of the block, the same for all threads that give the same tag.
void* shared_memory(const void* tag, std::size_t bytes);
void* dynamic_shared_memory();

template <class T>
struct Exchange {
    T value, result;
    int source;
};
template <class T>
__attribute__((no_sanitize("thread"))) void run_exchange(void** arguments, unsigned mask) {
    for (int lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        auto* mine = static_cast<Exchange<T>*>(arguments[lane]);
        if (mask >> mine->source & 1)
            mine->result = static_cast<Exchange<T>*>(arguments[mine->source])->value;
        else
            mine->source = -1;
    }
}
template <class T>
T exchange(unsigned mask, T value, int source, const char* what, Place place) {
    Exchange<T> mine{value, value, source};
    collective(mask, &run_exchange<T>, &mine, false, what, place);
    if (mine.source < 0) trap("the shuffle reads a lane that the mask does not name", place);
    return mine.result;
}

struct Vote {
    std::int64_t value;
    std::int64_t result;
};
template <class Join>
__attribute__((no_sanitize("thread"))) void run_vote(void** arguments, unsigned mask) {
    std::int64_t result = Join::start;
    for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) result = Join::join(result, static_cast<Vote*>(arguments[lane])->value, lane);
    for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) static_cast<Vote*>(arguments[lane])->result = result;
}
template <class Join>
std::int64_t vote(unsigned mask, std::int64_t value, const char* what, Place place) {
    Vote mine{value, 0};
    collective(mask, &run_vote<Join>, &mine, false, what, place);
    return mine.result;
}
struct Ballot {
    static constexpr std::int64_t start = 0;
    static std::int64_t join(std::int64_t all, std::int64_t value, int lane) {
        return all | (std::int64_t(value != 0) << lane);
    }
};
struct Sum {
    static constexpr std::int64_t start = 0;
    static std::int64_t join(std::int64_t all, std::int64_t value, int) { return all + value; }
};
struct Max {
    static constexpr std::int64_t start = INT64_MIN;
    static std::int64_t join(std::int64_t all, std::int64_t value, int) { return value > all ? value : all; }
};
struct Min {
    static constexpr std::int64_t start = INT64_MAX;
    static std::int64_t join(std::int64_t all, std::int64_t value, int) { return value < all ? value : all; }
};
inline void run_nothing(void**, unsigned) {}

/// One launch: what every thread runs, and for how many.
struct Launch {
    const char* name;
    const void* function;
    dim3 grid, block;
    std::size_t shared_bytes;
    std::function<void()> body;
    std::size_t shared_limit = 0;  ///< declared and dynamic shared memory together
};
void enqueue(Launch launch, cudaStream_t stream);
void check_argument(const void* pointer, const char* kernel, int number);

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
    const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);  // by value, as a real launch does
    int number = 0;
    const auto check_one = [&](const auto& value) {
        if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>) check_argument(value, name, number);
        ++number;
    };
    std::apply([&](const auto&... value) { (check_one(value), ...); }, values);
    enqueue({name, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
             [kernel, values] { std::apply(kernel, values); }},
            stream);
}

}  // namespace gradus::emulation

#define threadIdx (::gradus::emulation::current_thread->index)
#define blockIdx (::gradus::emulation::current_block->index)
#define blockDim (::gradus::emulation::current_block->size)
#define gridDim (::gradus::emulation::current_block->grid)
constexpr int warpSize = 32;

#define GRADUS_SHARED(T, name, dims)  \
    using name##_type = T dims;       \
    static const char name##_tag = 0; \
    name##_type& name = *static_cast<name##_type*>(::gradus::emulation::shared_memory(&name##_tag, sizeof(name##_type)))
#define GRADUS_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::gradus::emulation::dynamic_shared_memory())

// A default argument is evaluated where the call stands: that is how a barrier knows its line.
#define GRADUS_PLACE ::gradus::emulation::Place place = {__builtin_FILE(), __builtin_LINE()}

inline void gradus_syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ::gradus::emulation::barrier({file, line});
}
#define __syncthreads() gradus_syncthreads()
inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (!::gradus::emulation::skipped("syncwarp", file, line))
        ::gradus::emulation::collective(mask, ::gradus::emulation::run_nothing, nullptr, true, "__syncwarp",
                                        {file, line});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
    const int lane = int(::gradus::emulation::current_thread->lane);
    return ::gradus::emulation::exchange(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync",
                                         {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
    const int lane = int(::gradus::emulation::current_thread->lane), other = lane ^ bits;
    return ::gradus::emulation::exchange(mask, value, (other & ~(width - 1)) > (lane & ~(width - 1)) ? lane : other,
                                         "__shfl_xor_sync", {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    const int lane = int(::gradus::emulation::current_thread->lane);
    const bool inside = (lane & (width - 1)) + int(delta) < width;
    return ::gradus::emulation::exchange(mask, value, inside ? lane + int(delta) : lane, "__shfl_down_sync",
                                         {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
    const int lane = int(::gradus::emulation::current_thread->lane);
    const bool inside = (lane & (width - 1)) >= int(delta);
    return ::gradus::emulation::exchange(mask, value, inside ? lane - int(delta) : lane, "__shfl_up_sync",
                                         {file, line});
}
#define GRADUS_VOTE(name, result, parameter, join, expression)                                      \
    inline result name(unsigned mask, parameter value, const char* file = __builtin_FILE(),         \
                       int line = __builtin_LINE()) {                                               \
        const std::int64_t all =                                                                    \
            ::gradus::emulation::vote<::gradus::emulation::join>(mask, value, #name, {file, line}); \
        return result(expression);                                                                  \
    }
GRADUS_VOTE(__ballot_sync, unsigned, int, Ballot, all)
GRADUS_VOTE(__any_sync, int, int, Ballot, all != 0)
GRADUS_VOTE(__all_sync, int, int, Ballot, unsigned(all) == mask)
GRADUS_VOTE(__reduce_add_sync, unsigned, unsigned, Sum, all)
GRADUS_VOTE(__reduce_max_sync, unsigned, unsigned, Max, all)
GRADUS_VOTE(__reduce_min_sync, unsigned, unsigned, Min, all)
#undef GRADUS_VOTE
inline void __threadfence() { ::gradus::emulation::fence(); }
inline void __threadfence_block() { ::gradus::emulation::fence(); }

// ---- atomics: relaxed, as CUDA's ----
template <class T, class F>
T gradus_atomic(T* p, F change) {
    std::atomic_ref<T> word(*p);
    T old = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
    }
    return old;
}
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T old) { return T(old + v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T old) { return v > old ? v : old; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T old) { return T(old | v); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T old) { return T(old & v); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
    return gradus_atomic(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
    std::atomic_ref<T>(*p).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
    return expected;
}

// ---- arithmetic ----
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((std::uint64_t(a) * b) >> 32); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
template <class To, class From>
To gradus_bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}
inline float __int_as_float(int x) { return gradus_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return gradus_bits<float>(x); }
inline int __float_as_int(float x) { return gradus_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return gradus_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return gradus_bits<double>(x); }
inline long long __double_as_longlong(double x) { return gradus_bits<long long>(x); }
template <class T>
T __ldg(const T* p) {
    return *p;
}
