// Bytes between the host and the devices, and from one device to another.
#pragma once

#include <cstddef>

#include "gradus/core/tensor.h"

namespace gradus {

/// Copies bytes of a tensor's storage to the host and back, after the work that this thread's current stream holds;
/// returns when the host's memory has been read or written.
void read_bytes(const Tensor& x, const void* source, void* host, std::size_t bytes);
void write_bytes(const Tensor& x, void* target, const void* host, std::size_t bytes);

/// y = x across devices; both contiguous, of one dtype and shape. Runs on the card's current stream after the work that
/// x waits for; the host waits only where it must: for a copy to plain memory of its own.
void transfer(const Tensor& x, const Tensor& y);

/// Can one card read another's memory? Some machines say yes and copy wrongly: the answer is yes only after a pattern
/// has gone over and come back right. Otherwise copies go through the host.
bool peers(Device from, Device to);

}  // namespace gradus
