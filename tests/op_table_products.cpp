// Rows of the op table: products, softmax and norms, attention.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using reference::at;
using reference::Row;

void add_matmul(OpRows& rows) {
    rows.add({.name = "matmul",
              .operands = {number(), number()},
              .shapes = {{{3, 4}, {4, 5}},
                         {{4}, {4}},
                         {{4}, {4, 5}},
                         {{3, 4}, {4}},
                         {{2, 3, 4}, {2, 4, 5}},
                         {{2, 3, 4}, {4, 5}},
                         {{3, 4}, {2, 4, 5}},
                         {{2, 1, 3, 4}, {3, 4, 2}},
                         {{4}, {2, 4, 5}},
                         {{2, 3, 4}, {4}},
                         {{1, 1}, {1, 1}},
                         {{0, 4}, {4, 5}},
                         {{3, 0}, {0, 5}},
                         {{2, 3, 4}, {2, 4, 0}},
                         {{31, 33}, {33, 31}},
                         {{33, 65}, {65, 17}},
                         {{2, 33, 31}, {2, 31, 33}}},
              .call = [](const Tensors& t) { return matmul(t[0], t[1]); },
              .expect = [](const Arrays& a) { return reference::matmul(a[0], a[1]); },
              .length = 65});
    for (const auto& [bias, relu] : {std::pair(true, false), {false, false}, {true, true}, {false, true}}) {
        OpRow row{
            .name = std::string(relu ? "linear_relu" : "linear") + (bias ? "" : " without bias"),
            .operands = {number(), number()},
            .shapes = {{{3, 4}, {5, 4}}, {{2, 3, 4}, {5, 4}}, {{4}, {5, 4}}, {{0, 4}, {5, 4}}, {{33, 31}, {17, 31}}},
            .call = [bias = bias, relu = relu](
                        const Tensors& t) { return (relu ? linear_relu : linear)(t[0], t[1], bias ? t[2] : Tensor()); },
            .expect =
                [bias = bias, relu = relu](const Arrays& a) {
                    Array w{{a[1].shape[1], a[1].shape[0]}, {}};
                    w = reference::make(w.shape, [&](const Sizes& i) { return at(a[1], {i[1], i[0]}); });
                    Array y = reference::matmul(a[0], w);
                    if (bias) y = reference::zip(y, a[2], [](double v, double b) { return v + b; });
                    for (double& v : y.values) v = relu && v < 0 ? 0 : v;
                    return y;
                },
            .length = 33};
        if (bias) {
            row.operands.push_back(number());
            for (auto& shapes : row.shapes) shapes.push_back({shapes[1][0]});
        }
        rows.add(std::move(row));
    }
}

void add_masked_softmax(OpRows& rows) {
    rows.add({.name = "masked_softmax",
              .operands = {number(), mask()},
              .shapes = {{{3, 5}, {3, 5}}, {{2, 3, 33}, {3, 33}}, {{4, 3}, {4, 1}}, {{3, 1025}, {1025}}, {{0, 3}, {3}}},
              .call = [](const Tensors& t) { return masked_softmax(t[0], t[1], -1); },
              .expect =
                  [](const Arrays& a) {
                      const Array seen = reference::make(a[0].shape, [&](const Sizes& i) { return at(a[1], i); });
                      const std::size_t n = std::size_t(a[0].shape.back());
                      Array y = a[0];
                      for (std::size_t i = 0; i < y.values.size(); i += n) {
                          const auto cut = [&](const Array& x) {
                              return Row(x.values.begin() + std::ptrdiff_t(i),
                                         x.values.begin() + std::ptrdiff_t(i + n));
                          };
                          const Row row = reference::masked_softmax(cut(a[0]), cut(seen));
                          std::copy(row.begin(), row.end(), y.values.begin() + std::ptrdiff_t(i));
                      }
                      return y;
                  },
              .length = 33});
}

/// (v - mean) / √(variance + eps), or without the mean for rms_norm, along the last axes, as one row each.
Array normalised(const Array& x, std::size_t axes, double eps, bool centred) {
    Array flat{{}, x.values};
    std::int64_t width = 1;
    for (std::size_t i = 0; i < axes; ++i) width *= x.shape[x.shape.size() - 1 - i];
    flat.shape = {width == 0 ? 0 : reference::count(x.shape) / width, width};
    flat = reference::along(flat, 1, [&](Row row) {
        const double m = centred ? reference::mean(row) : 0;
        double square = 0;
        for (const double v : row) square += (v - m) * (v - m) / double(row.size());
        for (double& v : row) v = (v - m) / std::sqrt(square + eps);
        return row;
    });
    return {x.shape, flat.values};
}

void add_norms(OpRows& rows) {
    const auto affine = [](const Array& x, const Arrays& a) {
        Array y = reference::zip(x, a[1], [](double v, double w) { return v * w; });
        return a.size() > 2 ? reference::zip(y, a[2], [](double v, double b) { return v + b; }) : y;
    };
    rows.add({.name = "layer_norm",
              .operands = {number(), number(), number()},
              .shapes = {{{3, 5}, {5}, {5}}, {{2, 3, 33}, {33}, {33}}, {{0, 3}, {3}, {3}}, {{2, 1025}, {1025}, {1025}}},
              .call = [](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 0.1); },
              .expect = [affine](const Arrays& a) { return affine(normalised(a[0], 1, 0.1, true), a); },
              .length = 33});
    rows.add({.name = "layer_norm over two axes",
              .operands = {number(), number(), number()},
              .shapes = {{{3, 4, 5}, {4, 5}, {4, 5}}},
              .call = [](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 0.1); },
              .expect = [affine](const Arrays& a) { return affine(normalised(a[0], 2, 0.1, true), a); },
              .length = 33});
    rows.add({.name = "layer_norm without affine",
              .operands = {number()},
              .shapes = {{{3, 5}}, {{7}}},
              .call = [](const Tensors& t) { return layer_norm(t[0], {}, {}, 0.1); },
              .expect = [](const Arrays& a) { return normalised(a[0], 1, 0.1, true); },
              .length = 33});
    rows.add({.name = "layer_norm with weight only",
              .operands = {number(), number()},
              .shapes = {{{3, 5}, {5}}},
              .call = [](const Tensors& t) { return layer_norm(t[0], t[1]); },
              .expect = [affine](const Arrays& a) { return affine(normalised(a[0], 1, 1e-5, true), a); },
              .length = 33});
    for (const double p : {0.0, 0.5, 1.0}) {
        OpRow& row = rows.add(
            {.name = text("dropout_add_layer_norm ", p),
             .operands = {number(), number(), number(), number()},
             .shapes = {{{3, 5}, {3, 5}, {5}, {5}}, {{2, 3, 33}, {2, 3, 33}, {33}, {33}}, {{0, 3}, {0, 3}, {3}, {3}}},
             .call =
                 [p](const Tensors& t) {
                     Generator generator(5);
                     return dropout_add_layer_norm(t[0], t[1], t[2], t[3], p, 0.1, true, &generator);
                 },
             .expect = nullptr,
             .length = 33});
        if (p != 0.5)
            row.expect = [affine, p](const Arrays& a) {
                const Array sum = reference::zip(a[0], a[1], [p](double x, double r) { return p == 0 ? x + r : r; });
                return affine(normalised(sum, 1, 0.1, true), {sum, a[2], a[3]});
            };
    }
    rows.add({.name = "rms_norm",
              .operands = {number(), number()},
              .shapes = {{{3, 5}, {5}}, {{2, 3, 33}, {33}}, {{0, 3}, {3}}},
              .call = [](const Tensors& t) { return rms_norm(t[0], t[1], 0.1); },
              .expect = [affine](const Arrays& a) { return affine(normalised(a[0], 1, 0.1, false), a); },
              .length = 33});
    rows.add({.name = "rms_norm without weight",
              .operands = {number()},
              .shapes = {{{3, 5}}, {{7}}},
              .call = [](const Tensors& t) { return rms_norm(t[0], {}, 0.1); },
              .expect = [](const Arrays& a) { return normalised(a[0], 1, 0.1, false); },
              .length = 33});
}

AttentionOptions options_of(const Tensor& mask, const Tensor& additive, bool causal) {
    AttentionOptions options;
    options.mask = mask;
    options.additive_mask = additive;
    options.causal = causal;
    return options;
}

constexpr auto everything = [](auto...) { return 1.0; };
constexpr auto nothing = [](auto...) { return 0.0; };

void add_attention(OpRows& rows) {
    // Short and long rows, one query for many keys as in decoding, widths beside the vector sizes.
    const std::vector<std::vector<Sizes>> shapes = {{{2, 3, 4, 5}, {2, 3, 6, 5}, {2, 3, 6, 2}},
                                                    {{1, 2, 1, 8}, {1, 2, 33, 8}, {1, 2, 33, 8}},
                                                    {{1, 1, 70, 4}, {1, 1, 70, 4}, {1, 1, 70, 3}}};
    const auto add = [&](const char* name, auto options, auto visible, auto bias, std::vector<Operand> more = {},
                         std::vector<Sizes> more_shapes = {}) -> OpRow& {
        OpRow row{
            .name = text("scaled_dot_product_attention ", name),
            .operands = {number(), number(), number()},
            .shapes = shapes,
            .call = [options](const Tensors& t) { return scaled_dot_product_attention(t[0], t[1], t[2], options(t)); },
            .expect =
                [visible, bias](const Arrays& a) {
                    const std::int64_t offset = a[1].shape[2] - a[0].shape[2];
                    return reference::attention(
                        a[0], a[1], a[2], 1 / std::sqrt(double(a[0].shape[3])),
                        [&](auto b, auto h, auto t, auto s) { return double(visible(a, b, h, t, s, offset)); },
                        [&](auto b, auto h, auto t, auto s) { return double(bias(a, b, h, t, s)); });
                },
            .second_order = false,
            .length = 70};
        for (const Operand& operand : more) row.operands.push_back(operand);
        if (!more_shapes.empty())
            for (std::size_t i = 0; i < row.shapes.size(); ++i) row.shapes[i].push_back(more_shapes[i]);
        return rows.add(std::move(row));
    };
    add(
        "plain", [](const Tensors&) { return AttentionOptions{}; }, everything, nothing);
    add(
        "causal", [](const Tensors&) { return options_of({}, {}, true); },
        [](const Arrays&, auto, auto, auto t, auto s, auto offset) { return s <= t + offset; }, nothing);
    const auto from_mask = [](const Arrays& a, auto b, auto h, auto t, auto s, auto) { return at(a[3], {b, h, t, s}); };
    add("masked keys", [](const Tensors& t) { return options_of(t[3], {}, false); }, from_mask, nothing, {mask()},
        {{2, 1, 1, 6}, {1, 1, 1, 33}, {1, 1, 1, 70}});
    add("full mask", [](const Tensors& t) { return options_of(t[3], {}, false); }, from_mask, nothing, {mask()},
        {{2, 3, 4, 6}, {1, 2, 1, 33}, {1, 1, 70, 70}});
    add(
        "mask and causal", [](const Tensors& t) { return options_of(t[3], {}, true); },
        [from_mask](const Arrays& a, auto b, auto h, auto t, auto s, auto offset) {
            return s <= t + offset ? from_mask(a, b, h, t, s, offset) : 0.0;
        },
        nothing, {mask()}, {{2, 1, 1, 6}, {1, 1, 1, 33}, {1, 1, 1, 70}});
    add(
        "additive mask", [](const Tensors& t) { return options_of({}, t[3], false); }, everything,
        [](const Arrays& a, auto b, auto h, auto t, auto s) {
            return at(a[3], {b, h, t, s});
        },
        {constant(-3, 3)}, {{4, 6}, {1, 33}, {70, 70}});
    OpRow& dropped = add(
        "with dropout",
        [](const Tensors&) {
            static thread_local Generator generator;
            generator = Generator(11);
            AttentionOptions options;
            options.dropout = 0.3;
            options.generator = &generator;
            return options;
        },
        everything, nothing);
    dropped.expect = nullptr;
}

}  // namespace

std::vector<OpRow> product_rows() {
    OpRows rows;
    add_matmul(rows);
    add_masked_softmax(rows);
    add_norms(rows);
    add_attention(rows);
    return rows.take();
}

}  // namespace gradus::tests
