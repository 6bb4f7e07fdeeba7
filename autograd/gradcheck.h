// Central differences in f64: the check that a gradient is the derivative of its value, for the ops here and for yours.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/core/tensor.h"

namespace gradus {

/// Any composition of ops; it must give the same value for the same inputs, so a random op needs a generator made
/// inside.
using CheckedFunction = std::function<Tensor(const std::vector<Tensor>& xs)>;

struct GradcheckOptions {
    double step = 1e-5;       ///< of the differences, times max(1, |x|)
    double tolerance = 1e-6;  ///< |backward - differences| <= tolerance · max(1, |differences|)
    int directions =
        0;  ///< 0 moves every element by itself; n > 0 moves all of them along n random directions, for big inputs
    std::uint64_t seed = 1;  ///< of the weights r and of the directions
};

/// Checks dL/dx of L = Σ r f(x), with fixed random weights r, against (L(x + h) - L(x - h)) / 2h for every f64 tensor x
/// of `xs`. Tensors of other dtypes (indices, masks) are handed through. Inputs are cloned, so a layout to be tested is
/// made inside f. Throws Error with the worst element: its input, index, both numbers.
void gradcheck(const CheckedFunction& f, const std::vector<Tensor>& xs, const GradcheckOptions& options = {});

/// The same for the gradient itself, so for second derivatives: gradcheck of x -> d(Σ r f(x))/dx.
void gradgradcheck(const CheckedFunction& f, const std::vector<Tensor>& xs, const GradcheckOptions& options = {});

}  // namespace gradus
