// One row of the op table in one dtype, layout and size on one device, and what is checked in it.
#pragma once

#include <string>

#include "gradus/autograd/node.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {

struct Situation {
    const OpRow& row;
    const std::vector<Sizes>& shapes;
    Lay lay;
    DType dtype;
    Device device = {};

    std::string words() const {
        std::string all = text(row.name, ", ", device, ", ", dtype, ", ", name_of(lay), ", shapes");
        for (const Sizes& shape : shapes) append(all, " " + to_string(Shape(shape)));
        return all;
    }
    Lay lay_of(std::size_t operand) const { return possible(lay, shapes[operand]) ? lay : Lay::contiguous; }
    /// The row-major tensors below the operands.
    Tensors bases() const {
        Tensors made;
        for (std::size_t i = 0; i < shapes.size(); ++i)
            made.push_back(to(
                draw(row.operands[i], base_shape(lay_of(i), shapes[i]), dtype, shapes.size() * 100 + i + 1), device));
        return made;
    }
    Tensors operands(const Tensors& bases) const {
        Tensors all;
        for (std::size_t i = 0; i < bases.size(); ++i) all.push_back(laid(lay_of(i), bases[i], shapes[i]));
        return all;
    }
    bool differentiable(std::size_t operand, const Tensor& base) const {
        return row.operands[operand].gradient && is_floating(base.dtype());
    }
    /// How many elements of the operands share one of the bases: their gradients are summed.
    std::int64_t repeats() const {
        std::int64_t most = 1;
        for (const Sizes& shape : shapes)
            if (lay == Lay::expanded && !shape.empty()) most = std::max(most, shape[0]);
        return most;
    }
    std::int64_t numel() const {
        std::int64_t n = 0;
        for (const Sizes& shape : shapes) n += reference::count(shape);
        return n;
    }
};

/// Calls f for every situation of every row; a layout that no operand knows is left out.
template <class F>
void for_situations(std::initializer_list<DType> dtypes, F f, Device device = {}) {
    for (const OpRow& row : op_table())
        for (const auto& shapes : row.shapes)
            for (const Lay lay : all_lays) {
                bool known = false;
                for (const Sizes& shape : shapes) known = known || possible(lay, shape);
                if (!known) continue;
                for (const DType dtype : dtypes)
                    if (is_floating(dtype) || row.integers) f(Situation{row, shapes, lay, dtype, device});
            }
}

inline void check_value(const Situation& s) {
    const Tensors xs = s.operands(s.bases());
    Arrays plains;
    for (const Tensor& x : xs) plains.push_back(plain(x));
    const Tensor y = s.row.call(xs);
    const DType dtype = s.row.result ? s.row.result(s.dtype) : s.dtype;
    CHECK(to_string(y.dtype()) == to_string(dtype));
    if (!s.row.expect) return;
    Array expected = s.row.expect(plains);
    if (y.dtype() == DType::f16)  // beyond its range lies infinity
        for (double& v : expected.values) v = std::abs(v) >= 65520 ? std::copysign(INFINITY, v) : v;
    CHECK(to_string(y.shape()) == to_string(Shape(expected.shape)));
    CHECK(differs(y, expected.values, tolerance(y.dtype(), s.row.length, s.row.steps)) == "");
}

/// dL/dx of L = Σ r y for the bases that want one, r fixed.
inline Tensors gradients_of(const Situation& s, const Tensors& bases) {
    Tensors leaves;
    for (std::size_t i = 0; i < bases.size(); ++i)
        if (s.differentiable(i, bases[i])) leaves.push_back(require_grad(bases[i]));
    const Tensor y = s.row.call(s.operands(bases));
    const Tensor r = draw(number(-1, 1), Sizes(y.shape().begin(), y.shape().end()), DType::bf16, 77);
    return gradients(y, leaves, {}, to(cast(r, y.dtype()), y.device()));
}

}  // namespace gradus::tests
