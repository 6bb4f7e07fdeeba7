// Learning-rate schedules: factors as pure functions of the update's number, and the counter that applies them.
#pragma once

#include <functional>

#include "gradus/nn/optimizer.h"

namespace gradus {

/// The factor on a group's base learning rate for the update with this number, counted from 1.
using Factor = std::function<double(std::int64_t update)>;

/// 1 always.
Factor constant_factor();
/// min(1, s / warm_up): a straight line up to 1 at update `warm_up`.
Factor warm_up_factor(std::int64_t warm_up);
/// min(s / warm_up, √(warm_up / s)): up to 1 at update `warm_up`, then down with the inverse square root.
Factor inverse_sqrt_factor(std::int64_t warm_up);
/// d^-½ · min(s^-½, s · warm_up^-1.5), for a base learning rate of 1 (Vaswani et al., "Attention is all you need",
/// 2017).
Factor noam_factor(std::int64_t width, std::int64_t warm_up);
/// floor + (1 - floor) (1 + cos(π (s - 1) / total)) / 2: 1 in the first update, `floor` after `total` of them and from
/// there on.
Factor cosine_factor(std::int64_t total, double floor = 0);
/// decay ^ ⌊(s - 1) / every⌋.
Factor step_factor(std::int64_t every, double decay = 0.1);
/// The product of two, such as a warm-up times a cosine.
Factor product(Factor a, Factor b);

/// Sets an optimizer's learning rates: lr = base · factor(updates + 1), the base being each group's rate at
/// construction.
class Schedule {
  public:
    /// Sets the rates of the first update.
    Schedule(Optimizer& optimizer, Factor factor);
    /// Call after optimizer.step(): counts the update and sets the rates of the next.
    void advance();
    std::int64_t updates() const { return updates_; }

    void save(Values& values, const std::string& name = "schedule") const;
    /// Continues where `save` was called; throws, and changes nothing, when the values do not fit.
    void load(const Values& values, const std::string& name = "schedule");

  private:
    void apply();
    Optimizer* optimizer_;
    Factor factor_;
    std::vector<double> base_;
    std::int64_t updates_ = 0;
};

}  // namespace gradus
