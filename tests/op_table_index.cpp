// Rows of the op table: indexing, selection by masks, dropout.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using reference::at;
using reference::make;
using reference::Row;

void add_indexing(OpRows& rows) {
    rows.add({.name = "embedding",
              .operands = {indices(7), number()},
              .shapes = {{{5}, {7, 3}}, {{2, 33}, {7, 4}}, {{}, {7, 3}}, {{0, 2}, {7, 3}}},
              .call = [](const Tensors& t) { return embedding(t[0], t[1]); },
              .expect =
                  [](const Arrays& a) {
                      Sizes shape = a[0].shape;
                      shape.push_back(a[1].shape[1]);
                      return make(shape, [&](const Sizes& i) {
                          return at(a[1], {std::int64_t(at(a[0], Sizes(i.begin(), i.end() - 1))), i.back()});
                      });
                  }});
    const auto gathered = [](const Array& x, std::size_t axis, const Array& index) {
        return make(index.shape, [&](Sizes i) {
            i[axis] = std::int64_t(at(index, i));
            return at(x, i);
        });
    };
    for (const int axis : {0, 1})
        rows.add({.name = text("gather on axis ", axis),
                  .operands = {number(-9, 9), indices(3)},
                  .shapes = {{{3, 4}, {2, 4}}, {{3, 4}, {3, 3}}, {{3, 3}, {0, 3}}},
                  .call = [axis](const Tensors& t) { return gather(t[0], axis, t[1]); },
                  .expect = [=](const Arrays& a) { return gathered(a[0], std::size_t(axis), a[1]); }})
            .with_integers();
    for (const int axis : {0, 1})
        rows.add({.name = text("scatter_add on axis ", axis),
                  .operands = {number(), indices(3), number()},
                  .shapes = {{{3, 4}, {2, 4}, {2, 4}}, {{3, 4}, {3, 3}, {3, 3}}, {{3, 3}, {0, 3}, {0, 3}}},
                  .call = [axis](const Tensors& t) { return scatter_add(t[0], axis, t[1], t[2]); },
                  .expect =
                      [axis](const Arrays& a) {
                          Array y = a[0];
                          for (std::int64_t flat = 0; flat < reference::count(a[1].shape); ++flat) {
                              Sizes i = reference::index_of(flat, a[1].shape);
                              const double value = at(a[2], i);
                              i[std::size_t(axis)] = std::int64_t(at(a[1], i));
                              y.values[std::size_t(i[0] * y.shape[1] + i[1])] += value;
                          }
                          return y;
                      }})
            .sums(3);
    for (const int axis : {0, 1})
        rows.add({.name = text("index_select on axis ", axis),
                  .operands = {number(-9, 9), indices(3)},
                  .shapes = {{{3, 4}, {5}}, {{3, 4}, {0}}, {{4, 33}, {2}}},
                  .call = [axis](const Tensors& t) { return index_select(t[0], axis, t[1]); },
                  .expect =
                      [axis](const Arrays& a) {
                          Sizes shape = a[0].shape;
                          shape[std::size_t(axis)] = a[1].shape[0];
                          return make(shape, [&](Sizes i) {
                              i[std::size_t(axis)] = std::int64_t(at(a[1], {i[std::size_t(axis)]}));
                              return at(a[0], i);
                          });
                      }})
            .with_integers();
    rows.add({.name = "one_hot",
              .operands = {indices(4)},
              .shapes = {{{5}}, {{2, 3}}, {{}}, {{0}}},
              .call = [](const Tensors& t) { return one_hot(t[0], 4); },
              .expect =
                  [](const Arrays& a) {
                      Sizes shape = a[0].shape;
                      shape.push_back(4);
                      return make(shape, [&](const Sizes& i) {
                          return double(std::int64_t(at(a[0], Sizes(i.begin(), i.end() - 1))) == i.back());
                      });
                  }})
        .no_gradient()
        .gives([](DType) { return DType::f32; });
}

Row sorted(const Row& x, bool largest, bool places) {
    std::vector<std::size_t> order(x.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return largest ? x[a] > x[b] : x[a] < x[b]; });
    Row y;
    for (const std::size_t i : order) y.push_back(places ? double(i) : x[i]);
    return y;
}

void add_topk(OpRows& rows) {
    for (const bool largest : {true, false})
        for (const bool places : {false, true}) {
            OpRow& row =
                rows.add({.name = text("topk ", largest ? "largest" : "smallest", places ? " indices" : " values"),
                          .operands = {number(-9, 9)},
                          .shapes = {{{3, 5}}, {{33}}, {{2, 1025}}, {{0, 4}}},
                          .call =
                              [=](const Tensors& t) {
                                  const TopK found = topk(t[0], 3, -1, largest);
                                  return places ? found.indices : found.values;
                              },
                          .expect =
                              [=](const Arrays& a) {
                                  const Array all = reference::along(
                                      a[0], -1, [=](const Row& x) { return sorted(x, largest, places); });
                                  Sizes shape = all.shape;
                                  shape.back() = 3;
                                  return make(shape, [&](const Sizes& i) { return at(all, i); });
                              }});
            row.with_integers();
            if (places) row.no_gradient().gives(index_result);
        }
}

void add_selection(OpRows& rows) {
    const std::vector<std::vector<Sizes>> shapes = {{{33}, {33}, {33}}, {{3, 1}, {4}, {2, 3, 4}},
                                                    {{}, {3}, {3}},     {{2, 3}, {}, {}},
                                                    {{0}, {0}, {0}},    {{1025}, {1025}, {1}}};
    rows.add({.name = "where",
              .operands = {mask(), number(-9, 9), number(-9, 9)},
              .shapes = shapes,
              .call = [](const Tensors& t) { return where(t[0], t[1], t[2]); },
              .expect =
                  [](const Arrays& a) {
                      return reference::zip(a[0], a[1], a[2],
                                            [](double c, double x, double y) { return c != 0 ? x : y; });
                  }})
        .with_integers();
    rows.add({.name = "where number on the right",
              .operands = {mask(), number(-9, 9)},
              .shapes = {{{33}, {33}}, {{3, 1}, {4}}},
              .call = [](const Tensors& t) { return where(t[0], t[1], 5.0); },
              .expect =
                  [](const Arrays& a) {
                      return reference::zip(a[0], a[1], [](double c, double x) { return c != 0 ? x : 5; });
                  }})
        .with_integers();
    rows.add({.name = "where number on the left",
              .operands = {mask(), number(-9, 9)},
              .shapes = {{{33}, {33}}, {{3, 1}, {4}}},
              .call = [](const Tensors& t) { return where(t[0], 5.0, t[1]); },
              .expect =
                  [](const Arrays& a) {
                      return reference::zip(a[0], a[1], [](double c, double x) { return c != 0 ? 5 : x; });
                  }})
        .with_integers();
    rows.add({.name = "masked_fill",
              .operands = {number(-9, 9), mask()},
              .shapes = {{{33}, {33}}, {{2, 3, 4}, {4}}, {{4}, {2, 4}}, {{}, {}}, {{0, 3}, {3}}, {{1025}, {1025}}},
              .call = [](const Tensors& t) { return masked_fill(t[0], t[1], 3); },
              .expect =
                  [](const Arrays& a) {
                      return reference::zip(a[0], a[1], [](double x, double m) { return m != 0 ? 3 : x; });
                  }})
        .with_integers();
    for (const double p : {0.5, 0.0, 1.0}) {
        OpRow& row = rows.add({.name = text("dropout ", p),
                               .operands = {number()},
                               .shapes = {{{33}}, {{3, 5}}, {{}}, {{0}}},
                               .call =
                                   [p](const Tensors& t) {
                                       Generator generator(5);
                                       return dropout(t[0], p, true, &generator);
                                   },
                               .expect = nullptr});
        if (p != 0.5)
            row.expect = [p](const Arrays& a) {
                return reference::map(a[0], [p](double v) { return p == 0 ? v : 0; });
            };
    }
    rows.add({.name = "dropout outside training",
              .operands = {number()},
              .shapes = {{{33}}},
              .call = [](const Tensors& t) { return dropout(t[0], 0.5, false); },
              .expect = [](const Arrays& a) { return a[0]; }});
}

}  // namespace

std::vector<OpRow> index_rows() {
    OpRows rows;
    add_indexing(rows);
    add_topk(rows);
    add_selection(rows);
    return rows.take();
}

}  // namespace gradus::tests
