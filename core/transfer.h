// Bytes between the host and the devices, and from one device to another.
#pragma once

#include <cstddef>

#include "gradus/core/tensor.h"

namespace gradus {

/// Copies bytes of a tensor's storage to the host and back, after the work that this thread's current stream holds;
/// returns when the host's memory has been read or written. Writing a few MiB does not wait for the card: they are put
/// aside in page-locked memory.
void read_bytes(const Tensor& x, const void* source, void* host, std::size_t bytes);
void write_bytes(const Tensor& x, void* target, const void* host, std::size_t bytes);

/// y = x across devices; both contiguous, of one dtype and shape. Runs on the card's current stream after the work that
/// x waits for; when it returns, the host's memory may be read and written as one likes.
void transfer(const Tensor& x, const Tensor& y);

/// The same between page-locked memory of the host and a card, without waiting: until the work that the card's current
/// stream holds now is done, the host must not write x or read y.
void transfer_async(const Tensor& x, const Tensor& y);

/// Can one card read another's memory? Some machines say yes and copy wrongly: the answer is yes only after a pattern
/// has gone over and come back right. Otherwise copies go through the host.
bool peers(Device from, Device to);

}  // namespace gradus
