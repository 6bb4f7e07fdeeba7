// The memory of emulated cards: an address range each, out of reach but for the kernels of its own card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradus::emulation {

inline constexpr int most_devices = 8;

int device_total();  ///< GRADUS_EMULATED_DEVICES
std::size_t memory_total();
std::size_t memory_free(int device);

void* device_allocate(int device, std::size_t bytes);  ///< null when there is no room; 0xff bytes
bool device_free(int device, void* pointer);           ///< false where no allocation begins
void* host_allocate(std::size_t bytes);
bool host_free(void* pointer);

constexpr int pageable = -1, pinned = -2;
/// Which card's memory a pointer lies in, or `pinned`, or `pageable`.
int owner_of(const void* pointer);

/// Lets code touch the memory of exactly the devices of this set (bit d: device d); the rest is out of reach.
void open_devices(std::uint32_t set, int running);

/// From here on a kernel's access to memory that is not its own ends its block with a report, and the host's is named
/// on standard error before the process dies of it.
void catch_faults();
/// So that this host thread can report a fiber whose stack ran over.
void use_signal_stack(void*& memory);

}  // namespace gradus::emulation
