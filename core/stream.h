// Streams and events: orders of work on a device. On the CPU a stream runs at once, so both only count.
#pragma once

#include <cstdint>

#include "gradus/core/device.h"

namespace gradus {

/// Work given to one stream is done in order. On the CPU every call has finished when it returns.
class Stream {
  public:
    explicit Stream(Device device) : device_(device) { check_device(device); }
    Device device() const { return device_; }
    void synchronize() const {}  ///< returns when all work given so far is done

  private:
    Device device_;
};

/// A point in a stream's order that others can wait for.
class Event {
  public:
    void record(const Stream&) { ++records_; }
    bool reached() const { return true; }
    void wait() const {}
    std::int64_t records() const { return records_; }

  private:
    std::int64_t records_ = 0;
};

}  // namespace gradus
