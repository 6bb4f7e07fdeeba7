#include "gradus/nn/init.h"

#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"

namespace gradus::init {
namespace {

/// Draws in x's dtype where the CPU can, else in f32, and copies to where x is. A batch's random scope has no say in
/// weights.
template <class Drawing>
void fill_with(const char* op, const Tensor& x, Drawing&& drawing) {
    check(is_floating(x.dtype()), op, ": fills floating tensors: got ", x.dtype());
    ThreadState state = thread_state();
    state.random_scope = {};
    state.grad_mode = false;
    const ThreadStateGuard guard(state);
    const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    copy_(x.without_past(), gradus::to(cast(drawing(dtype), x.dtype()), x.device()));
}

}  // namespace

Fans fans(const Tensor& x) {
    check(x.rank() >= 2, "init: fan in and fan out need at least two axes: got shape ", x.shape());
    double further = 1;
    for (int axis = 2; axis < x.rank(); ++axis) further *= double(x.size(axis));
    return {double(x.size(1)) * further, double(x.size(0)) * further};
}

void zeros(const Tensor& x) { fill_(x.without_past(), 0); }
void ones(const Tensor& x) { fill_(x.without_past(), 1); }

void uniform(const Tensor& x, double low, double high, Generator& rng) {
    fill_with("init::uniform", x,
              [&](DType dtype) { return gradus::uniform(x.shape(), low, high, dtype, Device{}, &rng); });
}

void normal(const Tensor& x, double mean, double deviation, Generator& rng) {
    fill_with("init::normal", x,
              [&](DType dtype) { return gradus::normal(x.shape(), mean, deviation, dtype, Device{}, &rng); });
}

void xavier_uniform(const Tensor& x, Generator& rng, double gain) {
    const auto [in, out] = fans(x);
    const double bound = in + out > 0 ? gain * std::sqrt(6 / (in + out)) : 0;
    uniform(x, -bound, bound, rng);
}

void xavier_normal(const Tensor& x, Generator& rng, double gain) {
    const auto [in, out] = fans(x);
    normal(x, 0, in + out > 0 ? gain * std::sqrt(2 / (in + out)) : 0, rng);
}

void kaiming_uniform(const Tensor& x, Generator& rng, double gain) {
    const double in = fans(x).in, bound = in > 0 ? gain * std::sqrt(3 / in) : 0;
    uniform(x, -bound, bound, rng);
}

void kaiming_normal(const Tensor& x, Generator& rng, double gain) {
    const double in = fans(x).in;
    normal(x, 0, in > 0 ? gain / std::sqrt(in) : 0, rng);
}

}  // namespace gradus::init
