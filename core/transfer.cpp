#include "gradus/core/transfer.h"

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "gradus/core/error.h"
#include "gradus/core/late_fault.h"
#include "gradus/core/stream.h"
#ifdef GRADUS_HAS_CUDA
#include "gradus/core/cuda.h"
#endif

namespace gradus {
#ifdef GRADUS_HAS_CUDA
namespace {

void copy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind, Device device, bool wait) {
    const DeviceGuard guard(device);
    cudaStream_t stream = current_cuda_stream(device);
    cuda_check(cudaMemcpyAsync(target, source, bytes, kind, stream), "copy");
    if (!wait) return;
    cuda_check(cudaStreamSynchronize(stream), "copy");
    tell_faults(device);
}

/// Up to here the copy to page-locked memory costs less than the wait.
constexpr std::size_t put_aside_most = std::size_t(4) << 20;

std::size_t bytes_of(const Tensor& x) { return std::size_t(x.numel()) * std::size_t(size_of(x.dtype())); }

/// A stream copies from one to the other: neither is reused before.
void share(const Stream& stream, const Tensor& x, const Tensor& y) {
    x.storage().use_on(stream.handle());
    y.storage().use_on(stream.handle());
}

/// Sends a pattern over and back.
bool goes_over(Device from, Device to) {
    constexpr std::size_t count = 1 << 16;
    std::vector<std::uint32_t> pattern(count), back(count);
    for (std::size_t i = 0; i < count; ++i) pattern[i] = std::uint32_t(i) * 2654435761u ^ 0x5bd1e995u;
    const Tensor x = Tensor::empty({std::int64_t(count)}, DType::i32, from),
                 y = Tensor::empty({std::int64_t(count)}, DType::i32, to);
    write_bytes(x, x.address(), pattern.data(), count * 4);
    Event written;
    written.record(Stream::current(from));
    written.wait(Stream::current(to));
    {
        const DeviceGuard guard(to);
        cudaStream_t stream = current_cuda_stream(to);
        cuda_check(cudaMemcpyPeerAsync(y.address(), to.index, x.address(), from.index, count * 4, stream), "peer copy");
        cuda_check(cudaStreamSynchronize(stream), "peer copy");
    }
    read_bytes(y, y.address(), back.data(), count * 4);
    return back == pattern;
}

bool enable(Device from, Device to) {
    int can = 0;
    cuda_check(cudaDeviceCanAccessPeer(&can, to.index, from.index), "peer access");
    if (!can) return false;
    const DeviceGuard guard(to);
    const cudaError_t status = cudaDeviceEnablePeerAccess(from.index, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        cuda_check(status, "peer access");
    return goes_over(from, to);
}

void between_cards(const Tensor& x, const Tensor& y, std::size_t bytes) {
    if (!peers(x.device(), y.device())) {
        std::vector<char> host(bytes);
        read_bytes(x, x.address(), host.data(), bytes);
        return write_bytes(y, y.address(), host.data(), bytes);
    }
    const Stream stream = Stream::current(y.device());
    Event ready;
    ready.record(Stream::current(x.device()));
    ready.wait(stream);
    share(stream, x, y);
    const DeviceGuard guard(y.device());
    cuda_check(cudaMemcpyPeerAsync(y.address(), y.device().index, x.address(), x.device().index, bytes,
                                   static_cast<cudaStream_t>(stream.handle())),
               "peer copy");
    Event copied;  // what is given to the source's stream next may write the source
    copied.record(stream);
    copied.wait(Stream::current(x.device()));
}

}  // namespace

bool peers(Device from, Device to) {
    if (from.kind != Device::cuda || to.kind != Device::cuda) return false;
    if (from == to) return true;
    static std::mutex mutex;
    static std::map<std::pair<int, int>, bool> known;
    const std::lock_guard lock(mutex);
    const auto key = std::pair(from.index, to.index);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    return known[key] = enable(from, to);
}

void read_bytes(const Tensor& x, const void* source, void* host, std::size_t bytes) {
    if (x.device().kind == Device::cpu)
        std::memcpy(host, source, bytes);
    else
        copy(host, source, bytes, cudaMemcpyDeviceToHost, x.device(), true);
}

void write_bytes(const Tensor& x, void* target, const void* host, std::size_t bytes) {
    if (x.device().kind == Device::cpu) return void(std::memcpy(target, host, bytes));
    if (bytes > put_aside_most) return copy(target, host, bytes, cudaMemcpyHostToDevice, x.device(), true);
    const Tensor aside = Tensor::empty_pinned({std::int64_t(bytes)}, DType::u8);
    std::memcpy(aside.address(), host, bytes);
    share(Stream::current(x.device()), aside, x);
    copy(target, aside.address(), bytes, cudaMemcpyHostToDevice, x.device(), false);
}

void transfer(const Tensor& x, const Tensor& y) {
    const std::size_t bytes = bytes_of(x);
    if (bytes == 0) return;
    if (x.device().kind == Device::cpu) return write_bytes(y, y.address(), x.address(), bytes);
    if (y.device().kind == Device::cpu) return read_bytes(x, x.address(), y.address(), bytes);
    between_cards(x, y, bytes);
}

void transfer_async(const Tensor& x, const Tensor& y) {
    const std::size_t bytes = bytes_of(x);
    const bool to_card = y.device().kind == Device::cuda;
    const Device card = to_card ? y.device() : x.device();
    check(card.kind == Device::cuda && (to_card ? x : y).storage().pinned(), "transfer_async: needs page-locked memory",
          " of the CPU (Tensor::empty_pinned) and a card: got ", x.device(), " and ", y.device());
    if (bytes == 0) return;
    share(Stream::current(card), x, y);
    copy(y.address(), x.address(), bytes, to_card ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, card, false);
}

#else

bool peers(Device, Device) { return false; }
void read_bytes(const Tensor&, const void* source, void* host, std::size_t bytes) { std::memcpy(host, source, bytes); }
void write_bytes(const Tensor&, void* target, const void* host, std::size_t bytes) { std::memcpy(target, host, bytes); }
void transfer(const Tensor& x, const Tensor& y) {
    std::memcpy(y.address(), x.address(), std::size_t(x.numel()) * std::size_t(size_of(x.dtype())));
}
void transfer_async(const Tensor&, const Tensor&) { fail("transfer_async: this build has no cards"); }

#endif
}  // namespace gradus
