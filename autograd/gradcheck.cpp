#include "gradus/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

/// n fixed numbers of either sign, none of them near 0.
Values weights(std::int64_t n, std::uint64_t seed) {
    Values r;
    for (std::int64_t i = 0; i < n; ++i) {
        const PhiloxBlock block = philox({std::uint32_t(i), 0, 0, 0}, {std::uint32_t(seed), std::uint32_t(seed >> 32)});
        const double size = 0.5 + to_unit_f64(block[0], block[1]);
        r.push_back(block[2] & 1u ? size : -size);
    }
    return r;
}

std::string place(const Shape& shape, std::int64_t flat) {
    Dims index = Dims::filled(shape.rank(), 0);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    return to_string(index);
}

/// One check: the function, the inputs' values on the host, and what backward says about them.
class Check {
  public:
    Check(const char* name, const CheckedFunction& f, const std::vector<Tensor>& xs, const GradcheckOptions& options)
        : name_(name), f_(f), xs_(xs), options_(options) {
        check(options.step > 0 && options.tolerance > 0, name, ": step and tolerance must be above 0");
        for (std::size_t i = 0; i < xs.size(); ++i) {
            if (xs[i].dtype() == DType::f64) inputs_.push_back(i);
            values_.push_back(xs[i].dtype() == DType::f64 ? xs[i].to_vector<double>() : Values());
        }
        check(!inputs_.empty(), name, ": no input is f64, so there is nothing to check: cast the inputs to f64");
    }

    void run() {
        differentiate();
        if (options_.directions == 0)
            every_element();
        else
            directions();
        if (worst_ > options_.tolerance) fail(report_);
    }

  private:
    /// Fresh tensors; backward gets leaves, the differences plain ones.
    std::vector<Tensor> inputs(bool leaves) const {
        std::vector<Tensor> made = xs_;
        for (const std::size_t i : inputs_) {
            made[i] = Tensor::from(values_[i], xs_[i].shape(), xs_[i].device());
            if (leaves) require_grad(made[i]);
        }
        return made;
    }

    Values value() const {
        const NoGrad scope;
        return f_(inputs(false)).to_vector<double>();
    }

    void differentiate() {
        const EnableGrad scope;
        const std::vector<Tensor> made = inputs(true);
        const Tensor y = f_(made);
        check(y.dtype() == DType::f64, name_, ": the function must give f64: got ", y.dtype());
        check(y.requires_grad(), name_, ": the result has no past: the function dropped the gradient of its inputs");
        weights_ = weights(y.numel(), options_.seed);
        const Values plain = value(), again = value();
        for (std::size_t i = 0; i < plain.size(); ++i)
            check(plain[i] == again[i] || (std::isnan(plain[i]) && std::isnan(again[i])), name_,
                  ": the function gives other values for the same inputs: make its generator inside it");
        std::vector<Tensor> leaves;
        for (const std::size_t i : inputs_) leaves.push_back(made[i]);
        const std::vector<Tensor> found = gradients(y, leaves, {}, Tensor::from(weights_, y.shape(), y.device()));
        for (std::size_t k = 0; k < inputs_.size(); ++k) {
            const Shape& shape = xs_[inputs_[k]].shape();
            check(!found[k].defined() || found[k].shape() == shape, name_, ": the gradient of input ", inputs_[k],
                  " has another shape than the input: ", found[k].defined() ? found[k].shape() : Shape(), " and ",
                  shape);
            gradients_.push_back(found[k].defined() ? found[k].to_vector<double>()
                                                    : Values(std::size_t(shape.product()), 0.0));
        }
    }

    /// (L(x + h) - L(x - h)) / 2h; the outputs are subtracted one by one, so that large ones do not drown small
    /// changes.
    double slope(const Values& high, const Values& low, double width) const {
        double sum = 0;
        for (std::size_t i = 0; i < high.size(); ++i) sum += weights_[i] * (high[i] - low[i]) / width;
        return sum;
    }

    void every_element() {
        for (std::size_t k = 0; k < inputs_.size(); ++k) {
            const std::size_t input = inputs_[k];
            for (std::size_t i = 0; i < values_[input].size(); ++i) {
                double& x = values_[input][i];
                const double before = x, h = options_.step * std::max(1.0, std::abs(before));
                x = before + h;
                const Values high = value();
                x = before - h;
                const Values low = value();
                x = before;
                compare(gradients_[k][i], slope(high, low, 2 * h),
                        [&] { return text("input ", input, " at ", place(xs_[input].shape(), std::int64_t(i))); });
            }
        }
    }

    void directions() {
        for (int d = 0; d < options_.directions; ++d) {
            double expected = 0;
            const std::vector<Values> before = values_;
            std::vector<Values> way(inputs_.size());
            for (std::size_t k = 0; k < inputs_.size(); ++k) {
                way[k] =
                    weights(std::int64_t(before[inputs_[k]].size()), options_.seed + 1 + std::uint64_t(d) * 64 + k);
                for (std::size_t i = 0; i < way[k].size(); ++i) expected += gradients_[k][i] * way[k][i];
            }
            const Values high = moved(before, way, options_.step), low = moved(before, way, -options_.step);
            values_ = before;
            compare(expected, slope(high, low, 2 * options_.step),
                    [&] { return text("direction ", d, " of all inputs"); });
        }
    }

    Values moved(const std::vector<Values>& from, const std::vector<Values>& way, double h) {
        values_ = from;
        for (std::size_t k = 0; k < inputs_.size(); ++k)
            for (std::size_t i = 0; i < way[k].size(); ++i) values_[inputs_[k]][i] += h * way[k][i];
        return value();
    }

    template <class Where>
    void compare(double backward, double differences, Where where) {
        double error = std::abs(backward - differences) / std::max(1.0, std::abs(differences));
        if (std::isnan(error)) error = INFINITY;
        if (error <= worst_) return;
        worst_ = error;
        report_ = text(name_, ": the gradient is wrong, worst for ", where(), ": backward gave ", backward,
                       ", central differences ", differences, " (step ", options_.step, ", tolerance ",
                       options_.tolerance, ")");
    }

    const char* name_;
    const CheckedFunction& f_;
    const std::vector<Tensor>& xs_;
    const GradcheckOptions& options_;
    std::vector<std::size_t> inputs_;  // which of xs are checked
    std::vector<Values> values_, gradients_;
    Values weights_;
    double worst_ = 0;
    std::string report_;
};

}  // namespace

void gradcheck(const CheckedFunction& f, const std::vector<Tensor>& xs, const GradcheckOptions& options) {
    Check("gradcheck", f, xs, options).run();
}

void gradgradcheck(const CheckedFunction& f, const std::vector<Tensor>& xs, const GradcheckOptions& options) {
    const CheckedFunction gradient = [&](const std::vector<Tensor>& given) {
        const EnableGrad scope;
        std::vector<Tensor> made = given, leaves;
        for (Tensor& x : made) {
            if (x.dtype() != DType::f64) continue;
            if (!x.requires_grad()) x = require_grad(detach(x));
            leaves.push_back(x);
        }
        const Tensor y = f(made);
        check(y.requires_grad(),
              "gradgradcheck: the result has no past: the function dropped the gradient of its inputs");
        const Tensor r = Tensor::from(weights(y.numel(), options.seed + 7), y.shape(), y.device());
        std::vector<Tensor> parts;
        const std::vector<Tensor> found = gradients(y, leaves, {.retain_graph = true, .create_graph = true}, r);
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            const Tensor none = mul(leaves[i], 0.0);  // gives a linear function's constant gradient a past
            parts.push_back(reshape(found[i].defined() ? add(found[i], none) : none, {-1}));
        }
        return cat(parts, 0);
    };
    Check("gradgradcheck", gradient, xs, options).run();
}

}  // namespace gradus
