#include "gradus/core/cuda.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "gradus/core/error.h"
#include "gradus/core/late_fault.h"
#include "gradus/core/launch.h"
#include "gradus/core/stream.h"
#include "gradus/core/thread_state.h"

namespace gradus {
namespace {

#if defined(GRADUS_EMULATED)
constexpr bool is_emulated = true;
#else
constexpr bool is_emulated = false;
#endif

/// What this thread does on a card, for the text of an error.
struct Running {
    const char* op = nullptr;
    const char* kernel = nullptr;  ///< launched last
};
thread_local Running running;

/// A fault of a kernel is final: CUDA answers every later call with it. The first text is kept for all that follow.
struct Latch {
    std::mutex mutex;
    std::string first[max_cards];
};
Latch& latch() {
    static Latch* all = new Latch;
    return *all;
}

bool is_final(cudaError_t status) {
    switch (status) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorIllegalInstruction:
        case cudaErrorHardwareStackError:
        case cudaErrorAssert:
        case cudaErrorLaunchTimeout:
        case cudaErrorECCUncorrectable:
        case cudaErrorMpsClientTerminated:
            return true;
        default:
            return false;
    }
}

/// A kernel's name as GRADUS_LAUNCH was given it; a template stands in parentheses there.
std::string plain_name(std::string_view name) {
    if (name.size() > 1 && name.front() == '(' && name.back() == ')') name = name.substr(1, name.size() - 2);
    return std::string(name);
}

std::string describe(cudaError_t status, const char* what) {
    std::string message = running.op && std::string_view(running.op) != what ? text(running.op, ": ", what) : what;
    message += text(": CUDA error ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")");
    if (!is_final(status)) return message;
    if (running.kernel) message += text(", in the kernel ", plain_name(running.kernel), " or one before it");
#if defined(GRADUS_EMULATED)
    const std::string report = emulation::last_report();
    if (!report.empty()) message += ": " + report;
#endif
    return message + ": set GRADUS_SYNC=1 to find the op; the card's work is lost, restart the process";
}

bool synchronous() {
    static const bool on = [] {
        const char* text = std::getenv("GRADUS_SYNC");
        return text && *text && std::string_view(text) != "0";
    }();
    return on;
}

struct Cards {
    int count = 0;
    std::string absence;
    Cards() {
        const cudaError_t status = cudaGetDeviceCount(&count);
        if (status != cudaSuccess) {
            count = 0;
            cudaGetLastError();
            absence = status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice
                          ? "no NVIDIA driver or no card was found: install NVIDIA's driver"
                          : text("CUDA error ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")");
        } else if (count == 0) {
#if defined(GRADUS_EMULATED)
            absence = "this build emulates CUDA: set GRADUS_EMULATED_DEVICES to the number of cards";
#else
            absence = "no card was found";
#endif
        }
        count = std::min(count, max_cards);
    }
};
const Cards& cards() {
    static const Cards* all = new Cards;
    return *all;
}

std::string uuid_text(const cudaDeviceProp& card) {
    std::string uuid = "GPU-";
    for (int i = 0; i < 16; ++i) {
        char hex[4];
        std::snprintf(hex, sizeof hex, "%02x", unsigned(static_cast<unsigned char>(card.uuid.bytes[i])));
        uuid += hex;
        if (i == 3 || i == 5 || i == 7 || i == 9) uuid += '-';
    }
    return uuid;
}

}  // namespace

void cuda_check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    int card = 0;
    const std::string message = describe(status, what);
    cudaGetLastError();  // reported: the next check, maybe of another card, must not see it again
    if (!is_final(status)) raise(message);
    cudaGetDevice(&card);
    std::string first;
    {
        const std::lock_guard lock(latch().mutex);
        std::string& kept = latch().first[card < max_cards ? card : 0];
        if (kept.empty()) kept = message;
        first = kept;
    }
    raise(first == message ? message : text(what, ": cuda:", card, " has failed before: ", first));
}

int cuda_device_count() { return cards().count; }
const std::string& cuda_absence() { return cards().absence; }

void append_cuda_devices(std::vector<DeviceInfo>& all) {
    for (int i = 0; i < cuda_device_count(); ++i) {
        cudaDeviceProp card{};
        cuda_check(cudaGetDeviceProperties(&card, i), "cudaGetDeviceProperties");
        all.push_back(
            {Device{Device::cuda, i}, card.name, uuid_text(card), std::int64_t(card.totalGlobalMem), is_emulated});
    }
}

DeviceGuard::DeviceGuard(Device device) {
    cuda_check(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ == device.index)
        before_ = -1;
    else
        cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
}
DeviceGuard::~DeviceGuard() {
    if (before_ >= 0 && has_context(before_)) cuda_quiet(cudaSetDevice(before_));
}

bool has_context(int card) {
#if defined(GRADUS_EMULATED)
    return emulation::has_context(card);
#else
    // Of the driver, which is asked for by name: nothing links against it.
    using GetState = int (*)(int, unsigned*, int*);
    static const auto state = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
        const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000,
                                                                    cudaEnableDefault, &result);
#else
        const cudaError_t status =
            cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &result);
#endif
        if (status != cudaSuccess) cudaGetLastError(), function = nullptr;
        return reinterpret_cast<GetState>(function);
    }();
    unsigned flags = 0;
    int active = 0;
    return state && state(card, &flags, &active) == 0 && active != 0;
#endif
}

cudaStream_t current_cuda_stream(Device device) { return static_cast<cudaStream_t>(Stream::current(device).handle()); }

CudaOp::CudaOp(const char* op, Device device) : device_(device), before_(running.op) { running.op = op; }
CudaOp::~CudaOp() { running.op = before_; }
void CudaOp::finish() const {
    if (!synchronous()) return;
    const DeviceGuard guard(device_);
    cuda_check(cudaStreamSynchronize(current_cuda_stream(device_)), running.op);
    tell_faults(device_);
}

namespace detail {

void forget_card_errors() {
    const std::lock_guard lock(latch().mutex);
    for (std::string& text : latch().first) text.clear();
}

bool check_launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes) {
    check(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 &&
              std::uint64_t(block.x) * block.y * block.z <= 1024 && block.z <= 64 && shared_bytes <= 227 * 1024,
          "launch of ", plain_name(name), ": grid (", grid.x, ", ", grid.y, ", ", grid.z, "), block (", block.x, ", ",
          block.y, ", ", block.z, ") or ", shared_bytes, " bytes of shared memory are beyond what a card can do");
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
}

void allow_shared(const char* name, const void* kernel, Device device, std::size_t shared_bytes) {
    // Unasked, a kernel has 48 KiB, of which the arrays it declares take their part: half a KiB in those of ours that
    // also have dynamic memory.
    if (shared_bytes <= 32 * 1024) return;
    static std::mutex mutex;
    static std::map<std::pair<int, const void*>, std::size_t> known;
    const std::lock_guard lock(mutex);
    std::size_t& allowed = known[{device.index, kernel}];
    if (shared_bytes <= allowed) return;
    cudaFuncAttributes attributes{};
    const std::string plain = plain_name(name);
    cuda_check(cudaFuncGetAttributes(&attributes, kernel), plain.c_str());
    int most = 0;
    cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index), plain.c_str());
    // All that there is, once and for all: threads that launch at the same time must not lower each other's limit.
    most -= int(attributes.sharedSizeBytes);
    check(shared_bytes <= std::size_t(most), "launch of ", plain_name(name), ": needs ", shared_bytes,
          " bytes of dynamic shared memory, and ", device, " has ", most);
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most), plain.c_str());
    allowed = std::size_t(most);
}

void after_launch(const char* name) {
    running.kernel = name;
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
        cuda_check(status, plain_name(name).c_str());
}

}  // namespace detail
}  // namespace gradus
