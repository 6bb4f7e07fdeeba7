// Faults that a card finds in its data, such as an index out of range. The host does not wait for the answer: it tells
// the fault when it waits for the card anyway.
#pragma once

#include <functional>
#include <string>

#include "gradus/core/tensor.h"

namespace gradus {

/// The text of an error about the element at a flat position, which holds `value`.
using DescribeFault = std::function<std::string(std::int64_t position, std::int64_t value)>;

/// `found` (i64, on a card) will hold (position, value) of an element that a kernel has found wrong, or (-1, anything).
/// When the host next waits for the card after the work given so far (a value is read, a stream synchronized), an Error
/// with that text is thrown there, and names the module that runs now. Several faults of one wait are told as one, the
/// first. watch itself tells what has arrived by then, be it another op's.
void watch(const Tensor& found, DescribeFault describe);

/// Throws the first fault among the work that the card has done. Called wherever the host has waited.
void tell_faults(Device device);

}  // namespace gradus
