#include "gradus/nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace gradus {
namespace {

void check_positive(const char* what, std::int64_t value) {
    check(value >= 1, "schedule: ", what, " must be 1 or more: got ", value);
}

}  // namespace

Factor constant_factor() {
    return [](std::int64_t) { return 1.0; };
}

Factor warm_up_factor(std::int64_t warm_up) {
    check_positive("warm_up", warm_up);
    return [warm_up](std::int64_t s) { return std::min(1.0, double(s) / double(warm_up)); };
}

Factor inverse_sqrt_factor(std::int64_t warm_up) {
    check_positive("warm_up", warm_up);
    return [w = double(warm_up)](std::int64_t s) { return std::min(double(s) / w, std::sqrt(w / double(s))); };
}

Factor noam_factor(std::int64_t width, std::int64_t warm_up) {
    check_positive("width", width);
    check_positive("warm_up", warm_up);
    return [d = double(width), w = double(warm_up)](std::int64_t s) {
        return std::pow(d, -0.5) * std::min(std::pow(double(s), -0.5), double(s) * std::pow(w, -1.5));
    };
}

Factor cosine_factor(std::int64_t total, double floor) {
    check_positive("total", total);
    check(floor >= 0 && floor <= 1, "schedule: floor must lie in [0, 1]: got ", floor);
    return [total, floor](std::int64_t s) {
        const double done = double(std::min(s - 1, total)) / double(total);
        return floor + (1 - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
    };
}

Factor step_factor(std::int64_t every, double decay) {
    check_positive("every", every);
    return [every, decay](std::int64_t s) { return std::pow(decay, double((s - 1) / every)); };
}

Factor product(Factor a, Factor b) {
    return [a = std::move(a), b = std::move(b)](std::int64_t s) { return a(s) * b(s); };
}

Schedule::Schedule(Optimizer& optimizer, Factor factor) : optimizer_(&optimizer), factor_(std::move(factor)) {
    check(bool(factor_), "schedule: the factor is empty");
    for (int group = 0; group < optimizer.group_count(); ++group) base_.push_back(optimizer.lr(group));
    apply();
}

void Schedule::advance() {
    ++updates_;
    apply();
}

void Schedule::apply() {
    const double factor = factor_(updates_ + 1);
    for (int group = 0; group < int(base_.size()); ++group)
        optimizer_->set_lr(base_[std::size_t(group)] * factor, group);
}

void Schedule::save(Values& values, const std::string& name) const {
    values[name + ".updates"] = updates_;
    values[name + ".groups"] = std::int64_t(base_.size());
    for (std::size_t group = 0; group < base_.size(); ++group) values[text(name, ".base.", group)] = base_[group];
}

void Schedule::load(const Values& values, const std::string& name) {
    const std::int64_t updates = integer_at(values, name + ".updates"), groups = integer_at(values, name + ".groups");
    check(updates >= 0, "schedule: ", name, ".updates is ", updates, ", expected 0 or more");
    check(groups == std::int64_t(base_.size()), "schedule: the state has ", groups, " groups, the optimizer ",
          base_.size());
    std::vector<double> base;
    for (std::int64_t group = 0; group < groups; ++group)
        base.push_back(number_at(values, text(name, ".base.", group)));
    base_ = std::move(base);
    updates_ = updates;
    apply();
}

}  // namespace gradus
