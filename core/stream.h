// Streams and events: orders of work on a device. On the CPU a stream runs at once, so both only count.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gradus/core/device.h"

namespace gradus {

/// Work given to one stream is done in order. On the CPU every call has finished when it returns; on a card the call
/// only hands the work over.
class Stream {
  public:
    /// A new stream beside the device's own one. It lives until the process ends: make few, and keep them.
    explicit Stream(Device device);
    /// The stream this thread's work on the device goes to: the device's own one unless a StreamGuard is in force.
    static Stream current(Device device);
    Device device() const { return device_; }
    void synchronize() const;  ///< returns when all work given so far is done; throws what went wrong in it
    bool operator==(const Stream& other) const { return device_ == other.device_ && handle_ == other.handle_; }
    void* handle() const { return handle_.get(); }  ///< a cudaStream_t; null on the CPU

  private:
    Stream(Device device, std::shared_ptr<void> handle) : device_(device), handle_(std::move(handle)) {}
    Device device_;
    std::shared_ptr<void> handle_;
};

/// Sends this thread's work on the stream's device to it, for a scope.
class StreamGuard {
  public:
    explicit StreamGuard(const Stream& stream);
    ~StreamGuard();
    StreamGuard(const StreamGuard&) = delete;
    StreamGuard& operator=(const StreamGuard&) = delete;

  private:
    Stream stream_;
    void* before_;
};

/// A point in a stream's order that others can wait for.
class Event {
  public:
    void record(const Stream& stream);
    bool reached() const;                   ///< is all work before the point done? true where nothing was recorded
    void wait() const;                      ///< the host waits
    void wait(const Stream& stream) const;  ///< what is given to the stream from now on waits; the host does not
    std::int64_t records() const { return records_; }

  private:
    std::shared_ptr<void> handle_;  ///< a cudaEvent_t once recorded on a card
    Device device_;
    std::int64_t records_ = 0;
};

/// Waits for all of a device's streams.
void synchronize(Device device);

#ifdef GRADUS_HAS_CUDA
/// The op that is running on a card: named in errors that surface in it.
class CudaOp {
  public:
    CudaOp(const char* op, Device device);
    ~CudaOp();
    void finish() const;  ///< with GRADUS_SYNC=1 waits for the current stream and throws what went wrong
    CudaOp(const CudaOp&) = delete;
    CudaOp& operator=(const CudaOp&) = delete;

  private:
    Device device_;
    const char* before_;
};
#endif

}  // namespace gradus
