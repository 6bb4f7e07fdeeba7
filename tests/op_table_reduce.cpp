// Rows of the op table: reductions over some axes, all axes, kept and dropped, and what runs along an axis.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using reference::Row;
using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);

struct Case {
    Sizes shape, axes;
    bool keep;
};
// The sizes 31, 33 and 1025 lie beside the widths that kernels work in; one inner, outer, middle and mixed reduction
// each.
const std::vector<Case> cases = {
    {{31}, {}, false},
    {{33}, {0}, true},
    {{1025}, {-1}, false},
    {{}, {}, false},
    {{3, 4, 5}, {1}, false},
    {{3, 4, 5}, {0, 2}, true},
    {{4, 33}, {1}, false},
    {{33, 4}, {0}, false},
    {{2, 3, 4, 5}, {0, 1}, false},
    {{2, 3, 4, 5}, {1, 3}, false},
    {{5, 1}, {1}, false},
    {{3, 0}, {0}, false},
    {{300, 3}, {0}, true},
    {{1, 3}, {0}, false},
};
const std::vector<Case> empty_cases = {{{0}, {}, false}, {{3, 0}, {1}, false}, {{0, 2}, {0}, true}};

template <class F>
void add(OpRows& rows, const char* name, Reduction op, F formula, bool empty, OpRow model = {}, Operand x = number()) {
    std::vector<Case> all = cases;
    if (empty) all.insert(all.end(), empty_cases.begin(), empty_cases.end());
    for (const Case& c : all) {
        OpRow row = model;
        row.name = text(name, " ", Shape(c.shape), " over ", Axes(c.axes), c.keep ? " kept" : "");
        row.operands = {x};
        row.shapes = {{c.shape}};
        row.call = [op, c](const Tensors& t) { return op(t[0], c.axes, c.keep); };
        row.expect = [formula, c](const Arrays& a) { return reference::reduce(a[0], c.axes, c.keep, formula); };
        row.length = reference::count(c.shape);
        rows.add(std::move(row));
    }
}

double smallest(Row x) {
    for (double& v : x) v = -v;
    return -reference::largest(x);
}
double product(const Row& x) {
    double p = 1;
    for (const double v : x) p *= v;
    return p;
}
double length(const Row& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
}
Tensor biased_variance(const Tensor& x, const Axes& axes, bool keep) { return var(x, axes, keep, false); }
Tensor unbiased_variance(const Tensor& x, const Axes& axes, bool keep) { return var(x, axes, keep); }

template <class F>
void add_along(OpRows& rows, const char* name, Tensor (*op)(const Tensor&, int), F formula) {
    for (const Case& c : cases) {
        if (c.axes.size() != 1) continue;
        const int axis = int(c.axes[0]);
        rows.add({.name = text(name, " ", Shape(c.shape), " along ", axis),
                  .operands = {number()},
                  .shapes = {{c.shape}},
                  .call = [op, axis](const Tensors& t) { return op(t[0], axis); },
                  .expect = [formula, axis](const Arrays& a) { return reference::along(a[0], axis, formula); },
                  .length = c.shape[std::size_t(reference::axis_of(axis, c.shape))]});
    }
}

template <class Better>
void add_arg(OpRows& rows, const char* name, Tensor (*op)(const Tensor&, int, bool), Better better) {
    for (const Case& c : cases) {
        if (c.axes.size() != 1 || reference::count(c.shape) == 0) continue;
        const auto formula = [better](const Row& x) {
            std::size_t best = 0;
            for (std::size_t i = 1; i < x.size(); ++i) best = better(x[i], x[best]) ? i : best;
            return double(best);
        };
        rows.add({.name = text(name, " ", Shape(c.shape), " over ", c.axes[0], c.keep ? " kept" : ""),
                  .operands = {number(-9, 9)},
                  .shapes = {{c.shape}},
                  .call = [op, c](const Tensors& t) { return op(t[0], int(c.axes[0]), c.keep); },
                  .expect = [formula, c](const Arrays& a) { return reference::reduce(a[0], c.axes, c.keep, formula); }})
            .no_gradient()
            .with_integers()
            .gives(index_result);
    }
}

}  // namespace

std::vector<OpRow> reduce_rows() {
    OpRows rows;
    OpRow integer_sum;
    integer_sum.with_integers().gives(sum_result);
    OpRow with_integers;
    with_integers.with_integers();
    add(rows, "sum", sum, reference::total, true, integer_sum);
    add(rows, "mean", mean, reference::mean, true);
    add(
        rows, "var unbiased", unbiased_variance, [](const Row& x) { return reference::variance(x, 1); }, true);
    add(
        rows, "var biased", biased_variance, [](const Row& x) { return reference::variance(x, 0); }, true);
    add(rows, "max", max, reference::largest, false, with_integers);
    add(rows, "min", min, smallest, false, with_integers);
    add(rows, "prod", prod, product, true, {}, number(0.8, 1.2));
    add(rows, "logsumexp", logsumexp, reference::logsumexp, true);
    add(rows, "norm", norm, length, true, {}, number(-2, 2, {0}));
    OpRow logic;
    logic.no_gradient().gives(boolean_result);
    add(
        rows, "any", any, [](const Row& x) { return double(reference::total(x) > 0); }, true, logic, mask());
    add(
        rows, "all", all, [](const Row& x) { return double(reference::total(x) == double(x.size())); }, true, logic,
        mask());
    add_arg(rows, "argmax", argmax, [](double a, double b) { return a > b; });
    add_arg(rows, "argmin", argmin, [](double a, double b) { return a < b; });
    add_along(rows, "cumsum", cumsum, [](Row x) {
        for (std::size_t i = 1; i < x.size(); ++i) x[i] += x[i - 1];
        return x;
    });
    add_along(rows, "softmax", softmax, reference::softmax);
    add_along(rows, "log_softmax", log_softmax, reference::log_softmax);
    return rows.take();
}

}  // namespace gradus::tests
