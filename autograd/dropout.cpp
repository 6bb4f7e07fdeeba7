// Dropout and its rule, which draws the same mask again.
#include "gradus/kernels/dropout.h"
#include "gradus/autograd/rules.h"

namespace gradus {

// The same numbers for x and for every gradient of it: a linear op, so its rule is itself.
Tensor drop(const Tensor& x, double p, const Draw& draw) {
    const Tensor from = contiguous(x), y = Tensor::empty_like(from);
    kernels::dropout(from, p, draw, y);
    return record("dropout", y, wrt(from, [=](const Tensor& g) { return drop(g, p, draw); }));
}

void check_dropout(const char* op, double p) {
    check(p >= 0 && p <= 1, op, ": the probability must lie in [0, 1]: got ", p);
}

Draw dropout_draw(const char* op, const Tensor& x, double p, Generator* generator) {
    if (p == 0 || p == 1) return {};
    const Draw draw = (generator ? *generator : default_generator()).next();
    check(draw.samples == 0 || x.numel() % draw.samples == 0, op, ": x of shape ", x.shape(), " does not fall into ",
          draw.samples, " equal samples, as the open step scope wants");
    return draw;
}

/// A draw is taken from the generator exactly when training and 0 < p < 1. p counts in steps of 1/65536 (the 16-bit
/// lanes of Philox); without training, and for p = 0, the result is x itself.
Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
    check_floating("dropout", "x", x);
    check_dropout("dropout", p);
    if (!training || p == 0) return x;
    return drop(x, p, dropout_draw("dropout", x, p, generator));
}

}  // namespace gradus
