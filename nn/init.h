// Initialisers: they fill a tensor in place with numbers drawn on the CPU generator, so a model is the same on every
// device.
#pragma once

#include "gradus/core/random.h"
#include "gradus/core/tensor.h"

namespace gradus::init {

/// What x feeds: the inputs (fan in) and outputs (fan out) of one element's weight. A matrix is (out, in); further axes
/// count into both.
struct Fans {
    double in = 0, out = 0;
};
Fans fans(const Tensor& x);  ///< throws for fewer than two axes

void zeros(const Tensor& x);
void ones(const Tensor& x);
void uniform(const Tensor& x, double low, double high, Generator& rng);       ///< [low, high)
void normal(const Tensor& x, double mean, double deviation, Generator& rng);  ///< N(mean, deviation²)

/// U(-b, b) with b = gain √(6 / (in + out)). Glorot, Bengio: "Understanding the difficulty of training deep feedforward
/// neural networks" (AISTATS 2010).
void xavier_uniform(const Tensor& x, Generator& rng, double gain = 1);
void xavier_normal(const Tensor& x, Generator& rng, double gain = 1);  ///< N(0, σ²) with σ = gain √(2 / (in + out))

/// U(-b, b) with b = gain √(3 / in); √2 is the gain for relu. He, Zhang, Ren, Sun: "Delving deep into rectifiers" (ICCV
/// 2015).
void kaiming_uniform(const Tensor& x, Generator& rng, double gain = 1.4142135623730951);
void kaiming_normal(const Tensor& x, Generator& rng,
                    double gain = 1.4142135623730951);  ///< N(0, σ²) with σ = gain / √in

}  // namespace gradus::init
