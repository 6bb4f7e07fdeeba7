// Rows of the op table: losses.
#include "gradus/tests/op_table.h"

namespace gradus::tests {
namespace {

using reference::at;
using reference::Row;

CrossEntropyOptions ignoring(std::int64_t index) {
    CrossEntropyOptions options;
    options.ignore_index = index;
    return options;
}

CrossEntropyOptions options_of(const reference::CrossEntropy& from, const Tensor& logits) {
    CrossEntropyOptions options = ignoring(from.ignore_index);
    options.label_smoothing = from.smoothing;
    if (!from.weights.empty())
        options.class_weights =
            to(tensor_of(from.weights, {std::int64_t(from.weights.size())}, logits.dtype()), logits.device());
    if (from.reduction == reference::CrossEntropy::none) options.reduction = Reduction::none;
    if (from.reduction == reference::CrossEntropy::sum) options.reduction = Reduction::sum;
    return options;
}

void add_cross_entropy(OpRows& rows) {
    const std::vector<std::vector<Sizes>> shapes = {
        {{5, 4}, {5}}, {{33, 4}, {33}}, {{2, 4, 3}, {2, 3}}, {{2, 4, 3, 2}, {2, 3, 2}}};
    const Row weights = {0.5, 2, 1, 0.25};
    const auto add = [&](const std::string& name, reference::CrossEntropy options) {
        rows.add({.name = text("cross_entropy ", name),
                  .operands = {number(-3, 3), indices(4)},
                  .shapes = shapes,
                  .call = [options](const Tensors& t) { return cross_entropy(t[0], t[1], options_of(options, t[0])); },
                  .expect = [options](const Arrays& a) { return reference::cross_entropy(a[0], a[1], options); },
                  .length = 33});
    };
    using Options = reference::CrossEntropy;
    for (const auto& [how, reduction] :
         {std::pair("mean", Options::mean), {"sum", Options::sum}, {"none", Options::none}}) {
        Options options;
        options.reduction = reduction;
        add(how, options);
        options.ignore_index = 2;
        add(text(how, ", ignored"), options);
        options.smoothing = 0.2;
        add(text(how, ", ignored, smoothed"), options);
        options.weights = weights;
        add(text(how, ", ignored, smoothed, weighted"), options);
        options.ignore_index = -100;
        add(text(how, ", smoothed, weighted"), options);
    }
    rows.add({.name = "cross_entropy_sum",
              .operands = {number(-3, 3), indices(4)},
              .shapes = shapes,
              .call = [](const Tensors& t) { return cross_entropy_sum(t[0], t[1], ignoring(1)).sum; },
              .expect =
                  [](const Arrays& a) {
                      Options options;
                      options.ignore_index = 1;
                      options.reduction = Options::sum;
                      return reference::cross_entropy(a[0], a[1], options);
                  },
              .length = 33})
        .gives([](DType type) { return type == DType::f64 ? DType::f64 : DType::f32; });
    ;
    rows.add(
        {.name = "cross_entropy with probabilities",
         .operands = {number(-3, 3), number(0.05, 0.95)},
         .shapes = {{{5, 4}, {5, 4}}, {{2, 4, 3}, {2, 4, 3}}},
         .call = [](const Tensors& t) { return cross_entropy(t[0], t[1]); },
         .expect =
             [](const Arrays& a) {
                 const Array logs = reference::along(a[0], 1, reference::log_softmax);
                 const Array all = reference::zip(logs, a[1], [](double l, double p) { return -l * p; });
                 return Array{{}, {reference::total(all.values) * double(a[0].shape[1]) / double(all.values.size())}};
             },
         .length = 33});
    rows.add({.name = "nll_loss",
              .operands = {number(-3, 0), indices(4)},
              .shapes = shapes,
              .call = [](const Tensors& t) { return nll_loss(t[0], t[1], ignoring(0)); },
              .expect =
                  [](const Arrays& a) {
                      double sum = 0, kept = 0;
                      for (std::int64_t flat = 0; flat < reference::count(a[1].shape); ++flat) {
                          Sizes i = reference::index_of(flat, a[1].shape);
                          const auto target = std::int64_t(at(a[1], i));
                          if (target == 0) continue;
                          i.insert(i.begin() + 1, target);
                          sum -= at(a[0], i);
                          ++kept;
                      }
                      return Array{{}, {sum / kept}};
                  },
              .length = 33});
}

void add_losses(OpRows& rows) {
    using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
    const auto add = [&](const std::string& name, Loss loss, double (*formula)(double, double), Operand x, Operand y) {
        for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
            rows.add({.name = text(name, reduction == Reduction::mean  ? " mean"
                                         : reduction == Reduction::sum ? " sum"
                                                                       : " none"),
                      .operands = {x, y},
                      .shapes = {{{33}, {33}}, {{3, 5}, {3, 5}}, {{}, {}}, {{1025}, {1025}}},
                      .call = [=](const Tensors& t) { return loss(t[0], t[1], reduction); },
                      .expect =
                          [=](const Arrays& a) {
                              const Array all = reference::zip(a[0], a[1], formula);
                              if (reduction == Reduction::none) return all;
                              const double sum = reference::total(all.values);
                              return Array{{}, {reduction == Reduction::sum ? sum : sum / double(all.values.size())}};
                          },
                      .length = 1025});
    };
    add(
        "mse_loss", mse_loss, [](double x, double y) { return (x - y) * (x - y); }, number(), number());
    add(
        "l1_loss", l1_loss, [](double x, double y) { return std::abs(x - y); }, number(), number(3, 4));
    add(
        "bce_loss", bce_loss, [](double x, double y) { return -y * std::log(x) - (1 - y) * std::log1p(-x); },
        number(0.1, 0.9), number(0.05, 0.95));
    add(
        "bce_with_logits_loss", bce_with_logits_loss,
        [](double x, double y) { return std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::abs(x))); },
        number(-4, 4, {0}), number(0.05, 0.95));
    add(
        "gaussian_kl", gaussian_kl, [](double m, double l) { return -0.5 * (1 + l - m * m - std::exp(l)); }, number(),
        number());
}

}  // namespace

std::vector<OpRow> loss_rows() {
    OpRows rows;
    add_cross_entropy(rows);
    add_losses(rows);
    return rows.take();
}

}  // namespace gradus::tests
