// Modules with every kind of member, for the tests of the module tree.
#pragma once

#include <algorithm>
#include <array>
#include <set>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/container.h"
#include "gradus/nn/linear.h"
#include "gradus/nn/loss.h"
#include "gradus/nn/seq2seq.h"
#include "gradus/tests/support.h"

namespace gradus::tests {

inline const Device here{}, there{Device::cpu, 1};

/// Whether cpu:1 exists; says so where it does not.
inline bool two_devices() {
    if (device_count(Device::cpu) >= 2) return true;
    WARN("needs two CPU devices: set GRADUS_CPU_DEVICES=2");
    return false;
}

inline std::vector<std::string> names_of(const NamedTensors& named) {
    std::vector<std::string> names;
    for (const auto& entry : named) names.push_back(entry.first);
    return names;
}

inline std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

/// A layer with every kind of member: a counter that stays i64, a cache that is not saved, an absent bias, a child.
class Sample final : public Layer<Sample> {
  public:
    explicit Sample(Generator& rng)
        : weight(ones({2, 3}, DType::f32, here)),
          steps(zeros({}, DType::i64, here)),
          cache(zeros({4}, DType::f32, here), false),
          inner(3, 2, rng) {}
    Tensor forward(const Tensor& x) const { return inner(x); }
    void visit(Visitor& v) override {
        v("weight", weight);
        v("bias", bias);
        v("steps", steps);
        v("cache", cache);
        v("inner", inner);
    }
    Parameter weight, bias;
    Buffer steps, cache;
    Linear inner;
};

class Outer final : public Layer<Outer> {
  public:
    explicit Outer(Generator& rng) {
        for (int i = 0; i < 3; ++i) layers.emplace_back(rng);
    }
    Tensor forward(const Tensor& x) const { return layers[2](x); }
    void visit(Visitor& v) override { v("layers", layers); }
    std::vector<Sample> layers;
};

inline TransformerOptions small_options() {
    TransformerOptions o;
    o.source_vocabulary = o.target_vocabulary = 11;
    o.d_model = 8, o.heads = 2, o.hidden = 12;
    o.encoder_layers = 1, o.decoder_layers = 1;
    o.longest = 16;
    return o;
}

}  // namespace gradus::tests
