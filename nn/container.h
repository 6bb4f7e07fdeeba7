// Sequential: layers applied one after the other, named by their number.
#pragma once

#include <utility>

#include "gradus/nn/module.h"

namespace gradus {

/// A layer made of a function without state, to stand in a Sequential: Function([](const Tensor& x) { return relu(x);
/// }).
class Function final : public Layer<Function> {
  public:
    using Call = Tensor (*)(const Tensor&);
    explicit Function(Call call) : call_(call) {}
    Tensor forward(const Tensor& x) const { return call_(x); }
    void visit(Visitor&) override {}

  private:
    Call call_;
};

/// Sequential(Linear(4, 8, rng), Function(relu), Linear(8, 2, rng)): takes over the layers, each called with one
/// tensor.
class Sequential final : public Layer<Sequential> {
  public:
    template <class... Layers>
    explicit Sequential(Layers... layers) {
        (push_back(std::move(layers)), ...);
    }
    Sequential(const Sequential& other) : Layer(other) {
        for (const auto& step : other.steps_) steps_.push_back(step->copy());
    }
    Sequential(Sequential&&) noexcept = default;

    template <class M>
    void push_back(M layer) {
        steps_.push_back(std::make_unique<StepOf<M>>(std::make_unique<M>(std::move(layer))));
    }
    Tensor forward(const Tensor& x) const {
        Tensor y = x;
        for (const auto& step : steps_) y = step->run(y);
        return y;
    }
    void visit(Visitor& v) override {
        for (std::size_t i = 0; i < steps_.size(); ++i) v(std::to_string(i), steps_[i]->module());
    }
    std::size_t size() const { return steps_.size(); }
    Module& operator[](std::size_t i) {
        check(i < steps_.size(), "Sequential: there is no layer ", i, ": it has ", steps_.size());
        return steps_[i]->module();
    }

  private:
    struct Step {
        virtual ~Step() = default;
        virtual Tensor run(const Tensor& x) const = 0;
        virtual Module& module() = 0;
        virtual std::unique_ptr<Step> copy() const = 0;
    };
    template <class M>
    struct StepOf final : Step {
        explicit StepOf(std::unique_ptr<M> taken) : layer(std::move(taken)) {}
        Tensor run(const Tensor& x) const override { return (*layer)(x); }
        Module& module() override { return *layer; }
        std::unique_ptr<Step> copy() const override {
            return std::make_unique<StepOf<M>>(std::unique_ptr<M>(static_cast<M*>(copy_in_clone(*layer).release())));
        }
        std::unique_ptr<M> layer;
    };
    std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace gradus
