// Learning-rate schedules against their formulas.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/nn/schedule.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

Tensor leaf(double value) { return require_grad(Tensor::from({value}, Device{})); }

}  // namespace

TEST_CASE("schedule factors", "[schedule]") {
    CHECK(constant_factor()(1) == 1);
    CHECK(constant_factor()(100000) == 1);

    const Factor warm = warm_up_factor(4);
    CHECK(warm(1) == 0.25);
    CHECK(warm(4) == 1);
    CHECK(warm(5) == 1);

    const Factor root = inverse_sqrt_factor(4);
    CHECK(root(1) == 0.25);
    CHECK(root(4) == 1);
    CHECK(root(16) == 0.5);

    // d = 256, warm-up 4000: the peak is 1 / (16 √4000), the first rate 1 / (16 · 4000^1.5)
    const Factor noam = noam_factor(256, 4000);
    CHECK(noam(4000) == Approx(1 / (16 * std::sqrt(4000.0))).epsilon(1e-12));
    CHECK(noam(1) == Approx(1 / (16 * 4000 * std::sqrt(4000.0))).epsilon(1e-12));
    CHECK(noam(16000) == Approx(noam(4000) / 2).epsilon(1e-12));
    CHECK(noam(3999) < noam(4000));
    CHECK(noam(4001) < noam(4000));

    const Factor cosine = cosine_factor(6, 0.2);
    CHECK(cosine(1) == 1);
    CHECK(cosine(3) == Approx(0.2 + 0.8 * 0.75).epsilon(1e-12));  // cos 60° = 1/2
    CHECK(cosine(4) == Approx(0.6).epsilon(1e-12));
    CHECK(cosine(7) == Approx(0.2).epsilon(1e-12));
    CHECK(cosine(1000) == Approx(0.2).epsilon(1e-12));

    const Factor stairs = step_factor(3, 0.5);
    CHECK(stairs(1) == 1);
    CHECK(stairs(3) == 1);
    CHECK(stairs(4) == 0.5);
    CHECK(stairs(7) == 0.25);

    CHECK(product(warm, stairs)(2) == 0.5);
    CHECK(product(warm, stairs)(4) == 0.5);
}

TEST_CASE("schedule factors refuse what makes no sense", "[schedule]") {
    CHECK(contains(error_of([] { warm_up_factor(0); }), "warm_up must be 1 or more: got 0"));
    CHECK(contains(error_of([] { noam_factor(0, 1); }), "width must be 1 or more"));
    CHECK(contains(error_of([] { cosine_factor(0); }), "total must be 1 or more"));
    CHECK(contains(error_of([] { cosine_factor(5, 2); }), "floor must lie in [0, 1]: got 2"));
    CHECK(contains(error_of([] { step_factor(-1); }), "every must be 1 or more"));
}

TEST_CASE("the schedule's counter advances after the optimizer's step", "[schedule]") {
    const Tensor a = leaf(1), b = leaf(1);
    SGD sgd({{{{"a", a}}, {.lr = 1}}, {{{"b", b}}, {.lr = 0.5}}});
    Schedule schedule(sgd, warm_up_factor(4));
    const double expected[] = {0.25, 0.5, 0.75, 1, 1};
    double position = 1;
    for (const double lr : expected) {
        CHECK(sgd.lr(0) == lr);
        CHECK(sgd.lr(1) == lr / 2);
        assign_grad(a, Tensor::from({1.0}, Device{}));
        sgd.step();
        position -= lr;
        CHECK(a.item() == Approx(position).margin(1e-15));
        schedule.advance();
    }
    CHECK(schedule.updates() == 5);
}

TEST_CASE("a saved schedule continues", "[schedule]") {
    const Tensor p = leaf(1);
    SGD sgd({{"p", p}}, {.lr = 2});
    Schedule schedule(sgd, inverse_sqrt_factor(2));
    for (int i = 0; i < 7; ++i) schedule.advance();
    Values values;
    schedule.save(values);

    SGD other({{"p", p}}, {.lr = 0.001});
    Schedule resumed(other, inverse_sqrt_factor(2));
    resumed.load(values);
    CHECK(resumed.updates() == 7);
    CHECK(other.lr() == sgd.lr());
    CHECK(other.lr() == 2 * std::sqrt(2.0 / 8));
    resumed.advance(), schedule.advance();
    CHECK(other.lr() == sgd.lr());

    values.erase("schedule.updates");
    CHECK(contains(error_of([&] { resumed.load(values); }), "'schedule.updates' is missing"));
    CHECK(resumed.updates() == 8);
}
