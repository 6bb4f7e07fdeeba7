// Rows of the op table: views and copies.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using reference::make;

/// A row of one operand of one shape, which takes every dtype.
template <class Call, class Expect>
OpRow& add(OpRows& rows, const char* name, const Sizes& shape, Call call, Expect expect) {
    return rows
        .add({.name = name,
              .operands = {number(-9, 9)},
              .shapes = {{shape}},
              .call = [call](const Tensors& t) { return call(t[0]); },
              .expect = [expect](const Arrays& a) { return expect(a[0]); }})
        .with_integers();
}

Array with_shape(Array x, const Sizes& shape) {
    x.shape = shape;
    return x;
}

/// x[start:stop:step] along an axis, with the bounds already inside.
Array sliced(const Array& x, std::size_t axis, std::int64_t start, std::int64_t length, std::int64_t step) {
    Sizes shape = x.shape;
    shape[axis] = length;
    return make(shape, [&](Sizes i) {
        i[axis] = start + i[axis] * step;
        return reference::at(x, i);
    });
}

Array permuted(const Array& x, const std::vector<std::size_t>& order) {
    Sizes shape;
    for (const std::size_t axis : order) shape.push_back(x.shape[axis]);
    return make(shape, [&](const Sizes& i) {
        Sizes from(i.size());
        for (std::size_t k = 0; k < i.size(); ++k) from[order[k]] = i[k];
        return reference::at(x, from);
    });
}

void add_shapes(OpRows& rows) {
    const auto to = [](const Sizes& shape) { return [shape](const Array& x) { return with_shape(x, shape); }; };
    add(
        rows, "reshape", {4, 6},
        [](const Tensor& x) {
            return reshape(x, {3, -1});
        },
        to({3, 8}));
    add(
        rows, "reshape of nothing", {0, 3},
        [](const Tensor& x) {
            return reshape(x, {3, 0, 2});
        },
        to({3, 0, 2}));
    add(
        rows, "reshape to 0-d", {1, 1}, [](const Tensor& x) { return reshape(x, {}); }, to({}));
    add(
        rows, "flatten", {2, 3, 4}, [](const Tensor& x) { return flatten(x); }, to({24}));
    add(
        rows, "flatten the last two", {2, 3, 4}, [](const Tensor& x) { return flatten(x, 1); }, to({2, 12}));
    add(
        rows, "flatten of 0-d", {}, [](const Tensor& x) { return flatten(x); }, to({1}));
    add(
        rows, "squeeze", {1, 3, 1, 2}, [](const Tensor& x) { return squeeze(x); }, to({3, 2}));
    add(
        rows, "squeeze one axis", {1, 3, 1, 2}, [](const Tensor& x) { return squeeze(x, {2}); }, to({1, 3, 2}));
    add(
        rows, "unsqueeze", {3, 2}, [](const Tensor& x) { return unsqueeze(x, 1); }, to({3, 1, 2}));
    add(
        rows, "unsqueeze at the end", {3, 2}, [](const Tensor& x) { return unsqueeze(x, -1); }, to({3, 2, 1}));
    add(
        rows, "view", {4, 3},
        [](const Tensor& x) {
            return view(contiguous(x), {2, 6});
        },
        to({2, 6}));
    add(rows, "contiguous", {3, 5}, contiguous, to({3, 5}));
    add(rows, "clone", {3, 5}, clone, to({3, 5}));
    add(
        rows, "to", {3, 5}, [](const Tensor& x) { return gradus::to(x, Device{}); }, to({3, 5}));
    add(rows, "detach", {3, 5}, detach, to({3, 5})).no_gradient();
}

void add_selections(OpRows& rows) {
    add(
        rows, "permute", {2, 3, 4},
        [](const Tensor& x) {
            return permute(x, {2, 0, 1});
        },
        [](const Array& x) {
            return permuted(x, {2, 0, 1});
        });
    add(
        rows, "transpose", {2, 3, 4}, [](const Tensor& x) { return transpose(x); },
        [](const Array& x) {
            return permuted(x, {0, 2, 1});
        });
    add(
        rows, "transpose of two axes", {2, 3, 4}, [](const Tensor& x) { return transpose(x, 0, -1); },
        [](const Array& x) {
            return permuted(x, {2, 1, 0});
        });
    add(
        rows, "slice", {3, 5}, [](const Tensor& x) { return slice(x, 1, 1, 4); },
        [](const Array& x) { return sliced(x, 1, 1, 3, 1); });
    add(
        rows, "slice with step", {7, 2}, [](const Tensor& x) { return slice(x, 0, -6, 100, 2); },
        [](const Array& x) { return sliced(x, 0, 1, 3, 2); });
    add(
        rows, "slice of nothing", {7, 2}, [](const Tensor& x) { return slice(x, 0, 5, 2); },
        [](const Array& x) { return sliced(x, 0, 0, 0, 1); });
    add(
        rows, "select", {3, 5}, [](const Tensor& x) { return select(x, 0, -1); },
        [](const Array& x) { return with_shape(sliced(x, 0, 2, 1, 1), {5}); });
    for (auto op : {expand, broadcast_to})
        add(
            rows, op == expand ? "expand" : "broadcast_to", {3, 1},
            [op](const Tensor& x) {
                return op(x, {2, 3, 4});
            },
            [](const Array& x) {
                return make({2, 3, 4}, [&](const Sizes& i) { return reference::at(x, i); });
            });
    add(
        rows, "split in parts", {3, 7}, [](const Tensor& x) { return split(x, 3, 1)[0]; },
        [](const Array& x) { return sliced(x, 1, 0, 3, 1); });
    add(
        rows, "split by sizes", {6, 2},
        [](const Tensor& x) {
            return split(x, std::vector<std::int64_t>{1, 3, 2})[1];
        },
        [](const Array& x) { return sliced(x, 0, 1, 3, 1); });
    add(
        rows, "chunk", {7, 2}, [](const Tensor& x) { return chunk(x, 3)[2]; },
        [](const Array& x) { return sliced(x, 0, 6, 1, 1); });
    add(
        rows, "flip", {3, 4},
        [](const Tensor& x) {
            return flip(x, {0, 1});
        },
        [](const Array& x) {
            return make(x.shape, [&](const Sizes& i) { return reference::at(x, {2 - i[0], 3 - i[1]}); });
        });
    add(
        rows, "repeat", {2, 3},
        [](const Tensor& x) {
            return repeat(x, {2, 1, 2});
        },
        [](const Array& x) {
            return make({2, 2, 6}, [&](const Sizes& i) { return reference::at(x, {i[1], i[2] % 3}); });
        });
    add(
        rows, "pad", {2, 3},
        [](const Tensor& x) {
            return pad(x, {1, 0}, {0, 2}, 7);
        },
        [](const Array& x) {
            return make({3, 5}, [&](const Sizes& i) {
                return i[0] < 1 || i[1] > 2 ? 7.0 : reference::at(x, {i[0] - 1, i[1]});
            });
        });
    add(
        rows, "pad that cuts", {3, 4},
        [](const Tensor& x) {
            return pad(x, {-1, 1}, {0, -2});
        },
        [](const Array& x) {
            return make({2, 3}, [&](const Sizes& i) {
                return i[1] < 1 ? 0.0 : reference::at(x, {i[0] + 1, i[1] - 1});
            });
        });
    const auto triangle = [&](const char* name, Tensor (*op)(const Tensor&, std::int64_t), bool lower) {
        for (const std::int64_t diagonal : {0, -1, 2})
            add(
                rows, name, {2, 4, 5}, [op, diagonal](const Tensor& x) { return op(x, diagonal); },
                [lower, diagonal](const Array& x) {
                    return make(x.shape, [&](const Sizes& i) {
                        const std::int64_t above = i[2] - i[1];
                        return (lower ? above <= diagonal : above >= diagonal) ? reference::at(x, i) : 0.0;
                    });
                });
    };
    triangle("tril", tril, true);
    triangle("triu", triu, false);
}

void add_joins(OpRows& rows) {
    rows.add({.name = "cat",
              .operands = {number(-9, 9), number(-9, 9), number(-9, 9)},
              .shapes = {{{2, 3}, {2, 1}, {2, 2}}, {{2, 3}, {2, 0}, {2, 33}}},
              .call = [](const Tensors& t) { return cat(t, -1); },
              .expect =
                  [](const Arrays& a) {
                      const std::int64_t first = a[0].shape[1], second = first + a[1].shape[1];
                      return make({2, second + a[2].shape[1]}, [&](const Sizes& i) {
                          if (i[1] < first) return reference::at(a[0], i);
                          if (i[1] < second) return reference::at(a[1], {i[0], i[1] - first});
                          return reference::at(a[2], {i[0], i[1] - second});
                      });
                  }})
        .with_integers();
    rows.add({.name = "stack",
              .operands = {number(-9, 9), number(-9, 9)},
              .shapes = {{{2, 3}, {2, 3}}, {{0, 3}, {0, 3}}},
              .call = [](const Tensors& t) { return stack(t, 1); },
              .expect =
                  [](const Arrays& a) {
                      return make({a[0].shape[0], 2, 3}, [&](const Sizes& i) {
                          return reference::at(a[std::size_t(i[1])], {i[0], i[2]});
                      });
                  }})
        .with_integers();
    rows.add({.name = "cast to f64",
              .operands = {number(-9, 9)},
              .shapes = {{{3, 5}}, {{33}}, {{}}, {{0}}},
              .call = [](const Tensors& t) { return cast(t[0], DType::f64); },
              .expect = [](const Arrays& a) { return a[0]; }})
        .with_integers()
        .gives([](DType) { return DType::f64; });
    rows.add({.name = "cast to i32",
              .operands = {number(-9, 9)},
              .shapes = {{{3, 5}}, {{33}}, {{}}, {{0}}},
              .call = [](const Tensors& t) { return cast(t[0], DType::i32); },
              .expect = [](const Arrays& a) { return reference::map(a[0], [](double v) { return std::trunc(v); }); }})
        .no_gradient()
        .with_integers()
        .gives([](DType) { return DType::i32; });
    rows.add({.name = "cast to bool",
              .operands = {number(-3, 3)},
              .shapes = {{{3, 5}}, {{33}}, {{}}, {{0}}},
              .call = [](const Tensors& t) { return cast(t[0], DType::boolean); },
              .expect = [](const Arrays& a) { return reference::map(a[0], [](double v) { return double(v != 0); }); }})
        .no_gradient()
        .with_integers()
        .gives(boolean_result);
}

}  // namespace

std::vector<OpRow> view_rows() {
    OpRows rows;
    add_shapes(rows);
    add_selections(rows);
    add_joins(rows);
    return rows.take();
}

}  // namespace gradus::tests
