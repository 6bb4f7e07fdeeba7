// The emulator itself: wrong kernels must be reported with kernel, block, thread and place, right ones be silent.
#ifdef GRADUS_EMULATED

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

#include "gradus/core/emulation/async_copy.h"
#include "gradus/core/emulation/options.h"
#include "gradus/core/launch.h"
#include "gradus/core/stream.h"
#include "gradus/core/tensor.h"
#include "gradus/tests/cards.h"

namespace gradus::tests {
namespace {

using emulation::Options;

/// Policies for a scope.
class With {
  public:
    explicit With(const Options& o) : before_(emulation::options()) { emulation::options() = o; }
    ~With() { emulation::options() = before_; }
    With(const With&) = delete;
    With& operator=(const With&) = delete;

  private:
    Options before_;
};
Options ordered(Options::Order order, std::uint64_t seed = 1) {
    Options o = emulation::options();
    o.order = order, o.seed = seed;
    return o;
}

void wait(Device device) { Stream::current(device).synchronize(); }

/// The report that a launch leaves, after which the cards are mended.
template <class F>
std::string report_of(F launch) {
    const std::string text = error_of([&] {
        launch();
        wait(card(0));
    });
    emulation::reset_errors();
    detail::forget_card_errors();
    return text;
}

Tensor zeros_on(Device device, std::int64_t n) { return Tensor::from(std::vector<float>(std::size_t(n), 0), device); }

// ---- right kernels ----

__global__ void reverse_kernel(const float* x, float* y, bool second_barrier) {
    GRADUS_SHARED(float, part, [128]);
    for (int round = 0; round < 4; ++round) {
        part[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x] + float(round);
        __syncthreads();
        const float before = round == 0 ? 0 : y[blockIdx.x * 128 + threadIdx.x];
        y[blockIdx.x * 128 + threadIdx.x] = before + part[127 - threadIdx.x];
        if (second_barrier) __syncthreads();
    }
}

__global__ void warp_kernel(const float* x, float* y) {
    float v = x[threadIdx.x];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    const unsigned even = __ballot_sync(0xffffffffu, threadIdx.x % 2 == 0);
    const float below = __shfl_up_sync(0xffffffffu, x[threadIdx.x], 1),
                above = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 2);
    const float third = __shfl_sync(0xffffffffu, x[threadIdx.x], 3, 8);
    y[threadIdx.x] = v + (even == 0x55555555u ? 1000.0f : 0.0f);
    y[32 + threadIdx.x] = below, y[64 + threadIdx.x] = above, y[96 + threadIdx.x] = third;
    if (threadIdx.x < 16) y[128 + threadIdx.x] = float(__any_sync(0xffffu, threadIdx.x == 9));
}

__global__ void copies_kernel(const float* x, float* y, int pending) {
    GRADUS_SHARED(float, part, [2][64]);
    for (int k = 0; k < 2; ++k) {
        emulation::copy_async(&part[k][threadIdx.x * 4], x + k * 64 + threadIdx.x * 4, 16);
        emulation::copy_async_commit();
    }
    emulation::copy_async_wait(pending);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        y[threadIdx.x * 4 + i] = part[0][63 - (threadIdx.x * 4 + i)];
        if (pending == 0) y[64 + threadIdx.x * 4 + i] = part[1][threadIdx.x * 4 + i];
    }
    emulation::copy_async_wait(0);
}

TEST_CASE("right kernels give the right values under every order", "[emulation][cuda][race]") {
    if (!have_cards(1)) return;
    std::vector<float> values(256);
    for (std::size_t i = 0; i < 256; ++i) values[i] = float(i);
    const Tensor x = Tensor::from(values, card(0)), y = zeros_on(card(0), 256);
    for (const auto& [order, seed] : {std::pair{Options::Order::in_order, 1}, std::pair{Options::Order::reverse, 1},
                                      std::pair{Options::Order::random, 1}, std::pair{Options::Order::random, 2}}) {
        const With policy(ordered(order, std::uint64_t(seed)));
        GRADUS_LAUNCH(reverse_kernel, card(0), 2, 128, 0, x.data<float>(), y.data<float>(), true);
        const auto reversed = y.to_vector<float>();
        for (std::size_t i = 0; i < 256; ++i) CHECK(reversed[i] == float(4 * (i / 128 * 128 + 127 - i % 128) + 6));
        GRADUS_LAUNCH(warp_kernel, card(0), 1, 32, 0, x.data<float>(), y.data<float>());
        const auto warp = y.to_vector<float>();
        for (std::size_t i = 0; i < 32; ++i) {
            CHECK(warp[i] == 496 + 1000);
            CHECK(warp[32 + i] == float(i == 0 ? 0 : i - 1));
            CHECK(warp[64 + i] == float(i + 2 < 32 ? i + 2 : i));
            CHECK(warp[96 + i] == float(i / 8 * 8 + 3));
        }
        CHECK(warp[128] == 1);
        for (const auto copies : {Options::Copies::late, Options::Copies::eager, Options::Copies::random}) {
            emulation::options().copies = copies;
            for (int pending : {0, 1}) {
                GRADUS_LAUNCH(copies_kernel, card(0), 1, 16, 0, x.data<float>(), y.data<float>(), pending);
                const auto copied = y.to_vector<float>();
                for (std::size_t i = 0; i < 64; ++i) CHECK(copied[i] == float(63 - i));
                if (pending == 0) CHECK(copied[64 + 5] == 64 + 5);
            }
        }
    }
}

// ---- wrong ones ----

TEST_CASE("a missing second barrier changes the values under another order", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    std::vector<float> values(256);
    for (std::size_t i = 0; i < 256; ++i) values[i] = float(i);
    const Tensor x = Tensor::from(values, card(0)), y = zeros_on(card(0), 256);
    int wrong = 0;
    for (const auto order : {Options::Order::in_order, Options::Order::reverse, Options::Order::random}) {
        const With policy(ordered(order));
        GRADUS_LAUNCH(reverse_kernel, card(0), 2, 128, 0, x.data<float>(), y.data<float>(), false);
        const auto got = y.to_vector<float>();
        for (std::size_t i = 0; i < 256; ++i) wrong += got[i] != float(4 * (i / 128 * 128 + 127 - i % 128) + 6);
    }
    CHECK(wrong > 0);
}

__global__ void divergent_kernel(float* x) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        x[threadIdx.x] = 1;
        __syncthreads();
    }
}
__global__ void leaver_kernel(float* x) {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void deadlock_kernel(float* x) {
    if (threadIdx.x < 16)
        x[0] = __shfl_sync(0xffffffffu, 1.0f, 0);
    else
        __syncthreads();
}
__global__ void gone_lane_kernel(float* x) {
    if (threadIdx.x >= 30) return;
    __syncwarp(0x3fffffffu);
    x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
}
__global__ void masked_lane_kernel(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], 20);
}
__global__ void far_kernel(float* x) {
    if (threadIdx.x == 7) x[1 << 28] = 1;
}
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__global__ void large_stack_kernel(float* x) {
    volatile float much[64 * 1024];
    for (int i = 0; i < 64 * 1024; i += 512) much[i] = float(i);
    x[0] = much[512];
}
#endif
__global__ void unwaited_kernel(const float* x, float* y) {
    GRADUS_SHARED(float, part, [4]);
    emulation::copy_async(part, x, 16);
    emulation::copy_async_commit();
    if (threadIdx.x == 0) y[0] = part[0];
}
__global__ void misaligned_kernel(const float* x) {
    GRADUS_SHARED(float, part, [8]);
    emulation::copy_async(part, x + 1, 16);
    emulation::copy_async_commit();
    emulation::copy_async_wait(0);
}

TEST_CASE("wrong kernels are reported by name and place, and the card can be mended", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    Options plain = ordered(Options::Order::in_order);  // the texts below name the thread that comes first
    plain.copies = Options::Copies::late;
    const With policy(plain);
    const Tensor x = zeros_on(card(0), 64);
    float* p = x.data<float>();
    const auto says = [](const std::string& report, std::initializer_list<const char*> words) {
        for (const char* word : words) {
            INFO(report);
            CHECK(contains(report, word));
        }
    };
    says(report_of([&] { GRADUS_LAUNCH(divergent_kernel, card(0), 1, 64, 0, p); }),
         {"divergent_kernel", "divergent __syncthreads", "thread 0 waits at emulator_test.cpp:", "thread 32 at"});
    says(report_of([&] { GRADUS_LAUNCH(leaver_kernel, card(0), 1, 64, 0, p); }),
         {"leaver_kernel", "24 of 64 threads ended before __syncthreads at emulator_test.cpp:"});
    says(report_of([&] { GRADUS_LAUNCH(deadlock_kernel, card(0), 1, 32, 0, p); }),
         {"deadlock_kernel", "deadlock", "wait at __syncthreads", "wait in __shfl_sync"});
    says(report_of([&] { GRADUS_LAUNCH(gone_lane_kernel, card(0), 1, 32, 0, p); }),
         {"gone_lane_kernel", "block (0, 0, 0), thread 0", "names a lane whose thread has ended"});
    says(report_of([&] { GRADUS_LAUNCH(masked_lane_kernel, card(0), 1, 32, 0, p); }),
         {"masked_lane_kernel", "reads a lane that the mask does not name"});
    says(report_of([&] { GRADUS_LAUNCH(far_kernel, card(0), 3, 32, 0, p); }),
         {"far_kernel", "thread 7", "access to memory of cuda:0 that is not allocated"});
    says(report_of([&] { GRADUS_LAUNCH(unwaited_kernel, card(0), 1, 1, 0, p, p); }),
         {"unwaited_kernel", "asynchronous copies that were never waited for"});
    says(report_of([&] { GRADUS_LAUNCH(misaligned_kernel, card(0), 1, 1, 0, p); }),
         {"misaligned_kernel", "not aligned to its size"});
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    says(report_of([&] { GRADUS_LAUNCH(large_stack_kernel, card(0), 1, 1, 0, p); }),
         {"large_stack_kernel", "64 KiB of local variables"});
#endif
    // The card works again.
    GRADUS_LAUNCH(reverse_kernel, card(0), 0, 128, 0, p, p, true);
    CHECK(x.to_vector<float>().size() == 64);
}

__global__ void uninitialised_kernel(float* y) {
    GRADUS_SHARED(float, part, [64]);
    if (threadIdx.x < 63) part[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = part[threadIdx.x];
}

TEST_CASE("shared memory that nobody wrote reads as NaN", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    const Tensor y = zeros_on(card(0), 64);
    GRADUS_LAUNCH(uninitialised_kernel, card(0), 1, 64, 0, y.data<float>());
    const auto got = y.to_vector<float>();
    CHECK(got[0] == 1);
    CHECK(std::isnan(got[63]));
}

__global__ void add_kernel(float* x, float value) { x[threadIdx.x] += value; }
__global__ void double_kernel(float* x) { x[threadIdx.x] *= 2; }

TEST_CASE("what may not be an argument, or not be launched, is refused", "[emulation][cuda]") {
    if (!have_cards(2)) return;
    std::vector<float> host(32);
    const Tensor x = zeros_on(card(0), 32);
    CHECK(contains(report_of([&] { GRADUS_LAUNCH(double_kernel, card(0), 1, 32, 0, host.data()); }),
                   "argument 0 points to the host's memory"));
    CHECK(contains(error_of([&] { GRADUS_LAUNCH(double_kernel, card(0), 1, 2000, 0, x.data<float>()); }),
                   "launch of double_kernel: "));
    CHECK(contains(error_of([&] { GRADUS_LAUNCH(double_kernel, card(0), dim3(1, 70000), 32, 0, x.data<float>()); }),
                   "beyond what a card can do"));
    CHECK(cudaMemsetAsync(x.address(), 0, 4, nullptr) == cudaErrorInvalidResourceHandle);
    emulation::reset_errors();
}

TEST_CASE("the host that touches a card's memory dies with a message", "[emulation][cuda]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return;  // the sanitizer reports it first
#else
    if (!have_cards(1)) return;
    const Tensor x = zeros_on(card(0), 64);
    wait(card(0));
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL);  // Catch2's
        emulation::options().protect = true;
        Stream::current(card(0)).synchronize();
        _exit(int(*static_cast<volatile float*>(x.address())));
    }
    close(ends[1]);
    std::string message(300, '\0');
    message.resize(std::size_t(std::max<ssize_t>(0, read(ends[0], message.data(), message.size()))));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
#endif
}

TEST_CASE("threads that launch kernels and end leave nothing behind", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    const auto mappings = [] {
        std::ifstream maps("/proc/self/maps");
        return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    };
    const auto launch = [] {
        std::thread([] {
            const Tensor x = zeros_on(card(0), 1024);
            GRADUS_LAUNCH(add_kernel, card(0), 1, 1024, 0, x.data<float>(), 1.0f);
            wait(card(0));
        }).join();
    };
    launch();
    const auto before = mappings();
    for (int i = 0; i < 20; ++i) launch();
    CHECK(mappings() < before + 1000);  // 1,024 stacks with their guards are 2,048
}

TEST_CASE("a host that does not wait sees old values of page-locked memory", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    Options lazy = emulation::options();
    lazy.streams = Options::Streams::lazy;
    const With policy(lazy);
    const Tensor host = Tensor::empty_pinned({32}, DType::f32), x = zeros_on(card(0), 32);
    float* seen = host.data<float>();
    std::fill_n(seen, 32, -1.0f);
    cudaStream_t stream = current_cuda_stream(card(0));
    GRADUS_LAUNCH(add_kernel, card(0), 1, 32, 0, x.data<float>(), 5.0f);
    REQUIRE(cudaMemcpyAsync(seen, x.address(), 128, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(seen[3] == -1);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    wait(card(0));
    CHECK(seen[3] == 5);
}

TEST_CASE("without the wait for an event another stream's work comes too late", "[emulation][cuda]") {
    if (!have_cards(1)) return;
    Options lazy = emulation::options();
    lazy.streams = Options::Streams::lazy;
    const With policy(lazy);
    const Stream first(card(0)), second(card(0));
    for (const bool waits : {true, false}) {
        const Tensor x = zeros_on(card(0), 32);
        wait(card(0));
        {
            const StreamGuard guard(first);
            GRADUS_LAUNCH(add_kernel, card(0), 1, 32, 0, x.data<float>(), 3.0f);
        }
        if (waits) {
            Event done;
            done.record(first);
            done.wait(second);
        }
        const StreamGuard guard(second);
        GRADUS_LAUNCH(double_kernel, card(0), 1, 32, 0, x.data<float>());
        second.synchronize();
        const float seen = x.to_vector<float>()[0];
        first.synchronize();
        CHECK(seen == (waits ? 6.0f : 0.0f));
    }
}

TEST_CASE("another card's memory needs peer access", "[emulation][cuda]") {
    if (!have_cards(2)) return;
    // A third card would do; with two, peer access may have been enabled by an earlier copy.
    if (device_count(Device::cuda) < 3) return;
    const Tensor x = zeros_on(card(2), 32);
    CHECK(contains(report_of([&] { GRADUS_LAUNCH(double_kernel, card(0), 1, 32, 0, x.data<float>()); }),
                   "points to memory of cuda:2, to which cuda:0 has no peer access"));
}

}  // namespace
}  // namespace gradus::tests
#endif
