#include "gradus/nn/clip.h"

#include <cmath>
#include <functional>
#include <map>
#include <unordered_set>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/kernels/update.h"

namespace gradus {
namespace {

void each_gradient(const NamedTensors& parameters,
                   const std::function<void(const Tensor& parameter, const Tensor& g)>& f) {
    const NoGrad no_grad;
    std::unordered_set<const void*> seen;
    for (const auto& [name, parameter] : parameters) {
        check(parameter.defined(), "clip: parameter ", Quoted{name}, " is undefined");
        if (!seen.insert(parameter.identity()).second) continue;
        if (const Tensor g = parameter.grad(); g.defined()) f(parameter, g);
    }
}

/// A gradient may be an expanded view, which cannot be written: the leaf is given a copy of its own first.
Tensor writable(const Tensor& parameter, const Tensor& g) {
    if (g.is_contiguous()) return g;
    const Tensor copy = clone(g);
    assign_grad(parameter, copy);
    return copy;
}

}  // namespace

double gradient_norm(const NamedTensors& parameters) {
    std::map<Device, std::vector<Tensor>> devices;
    each_gradient(parameters, [&](const Tensor&, const Tensor& g) { devices[g.device()].push_back(contiguous(g)); });
    double sum = 0;
    for (const auto& [device, gradients] : devices)
        sum += kernels::sums_of_squares(gradients).to_vector<double>().back();
    return std::sqrt(sum);
}

double clip_factor(double norm, double limit) {
    check(limit >= 0, "clip: the limit must be 0 or more: got ", limit);
    return kernels::clip_factor(norm, limit);
}

double clip_grad_norm(const NamedTensors& parameters, double limit, bool error_if_nonfinite) {
    check(limit >= 0, "clip: the limit must be 0 or more: got ", limit);
    const double norm = gradient_norm(parameters);
    check(!error_if_nonfinite || std::isfinite(norm), "clip: the norm of the gradients is ", norm,
          ": look for the op with GRADUS_ANOMALY=1");
    const double factor = clip_factor(norm, limit);
    if (factor == 1) return norm;
    each_gradient(parameters, [&](const Tensor& parameter, const Tensor& g) {
        kernels::scale_in_place(writable(parameter, g), factor);
    });
    return norm;
}

void clip_grad_value(const NamedTensors& parameters, double limit) {
    check(limit >= 0, "clip: the limit must be 0 or more: got ", limit);
    each_gradient(parameters, [&](const Tensor& parameter, const Tensor& g) {
        kernels::clamp_in_place(writable(parameter, g), -limit, limit);
    });
}

}  // namespace gradus
