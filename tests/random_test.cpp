// Random numbers and dropout: their statistics, and that they depend on nothing but the key.
#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/thread_state.h"
#include "gradus/kernels/parallel.h"
#include "gradus/tests/support.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

struct Moments {
    double mean = 0, deviation = 0, smallest = INFINITY, largest = -INFINITY;
};
Moments moments(const Tensor& x) {
    Moments m;
    const std::vector<double> values = x.to_vector<double>();
    for (const double v : values) {
        m.mean += v / double(values.size());
        m.smallest = std::min(m.smallest, v);
        m.largest = std::max(m.largest, v);
    }
    for (const double v : values) m.deviation += (v - m.mean) * (v - m.mean) / double(values.size());
    m.deviation = std::sqrt(m.deviation);
    return m;
}

constexpr std::int64_t many = 1 << 18;
constexpr double five_sigma = 5.0 / 512;  // of a mean over 2^18 numbers of deviation 1

TEST_CASE("uniform numbers fill their interval evenly", "[random]") {
    for (const DType dtype : {DType::f32, DType::f64}) {
        Generator generator(1);
        const Tensor x = uniform({many}, -1, 3, dtype, Device{}, &generator);
        const Moments m = moments(x);
        CHECK(std::abs(m.mean - 1) < five_sigma * 4 / std::sqrt(12.0));
        CHECK(std::abs(m.deviation - 4 / std::sqrt(12.0)) < five_sigma);
        CHECK(m.smallest >= -1);
        CHECK(m.largest < 3);
        std::vector<int> tenths(10);
        for (const double v : x.to_vector<double>()) ++tenths[std::size_t((v + 1) / 0.4)];
        for (const int count : tenths) CHECK(std::abs(count / double(many) - 0.1) < 5 * std::sqrt(0.09 / double(many)));
    }
}

TEST_CASE("normal numbers have the moments and tails of a normal law", "[random]") {
    for (const DType dtype : {DType::f32, DType::f64}) {
        Generator generator(2);
        const Tensor x = normal({many}, 2, 3, dtype, Device{}, &generator);
        const Moments m = moments(x);
        CHECK(std::abs(m.mean - 2) < 3 * five_sigma);
        CHECK(std::abs(m.deviation - 3) < 3 * five_sigma);
        int within = 0, beyond = 0;
        double cubes = 0;
        for (const double v : x.to_vector<double>()) {
            const double z = (v - 2) / 3;
            within += std::abs(z) < 1;
            beyond += std::abs(z) > 3;
            cubes += z * z * z / double(many);
        }
        CHECK(std::abs(within / double(many) - 0.682689) < five_sigma);
        CHECK(std::abs(beyond / double(many) - 0.002700) < five_sigma / 10);
        CHECK(std::abs(cubes) < five_sigma * 4);
    }
}

TEST_CASE("the same generator state draws the same numbers, the next state others", "[random]") {
    Generator a(7), b(7);
    const auto draw = [](Generator& g) { return normal({33}, 0, 1, DType::f32, Device{}, &g).to_vector<float>(); };
    const std::vector<float> first = draw(a), second = draw(a);
    CHECK(first != second);
    CHECK(draw(b) == first);
    Generator restored = Generator::restore(7, 0, 1);
    CHECK(draw(restored) == second);
    Generator other(8);
    CHECK(draw(other) != first);
    manual_seed(7);
    CHECK(normal({33}, 0, 1, DType::f32, Device{}).to_vector<float>() == first);
}

TEST_CASE("a longer tensor starts with the shorter one's numbers", "[random]") {
    for (const std::int64_t n : {1, 3, 4, 31, 33, 1025}) {
        Generator a(3), b(3);
        const std::vector<float> longer = uniform({n + 1}, 0, 1, DType::f32, Device{}, &a).to_vector<float>();
        std::vector<float> shorter = uniform({n}, 0, 1, DType::f32, Device{}, &b).to_vector<float>();
        CHECK(std::equal(shorter.begin(), shorter.end(), longer.begin()));
    }
}

TEST_CASE("element e of a uniform tensor is word e % 4 of block e / 4", "[random]") {
    Generator generator(9), copy(9);
    const Draw draw = copy.next();
    const std::vector<float> got = uniform({1025}, 0, 1, DType::f32, Device{}, &generator).to_vector<float>();
    int different = 0;
    for (std::size_t e = 0; e < got.size(); ++e)
        different += std::abs(got[e] - to_unit(draw.block(e / 4, 0)[e % 4])) > roundoff(DType::f32);
    CHECK(different == 0);
}

TEST_CASE("dropout decides element e by 16-bit lane e % 8 of block e / 8", "[random]") {
    for (const double p : {0.3, 0.5}) {
        Generator generator(9), copy(9);
        const Draw draw = copy.next();
        const std::vector<float> got =
            dropout(ones({1025}, DType::f32, Device{}), p, true, &generator).to_vector<float>();
        int different = 0;
        for (std::size_t e = 0; e < got.size(); ++e) {
            const std::uint32_t word = draw.block(e / 8, 0)[e % 8 / 2], lane = e % 2 ? word >> 16 : word & 0xffff;
            different += (got[e] != 0) != (lane >= std::lround(p * 65536));
        }
        CHECK(different == 0);
    }
}

TEST_CASE("dropout keeps 1 - p of the elements, scaled to keep the mean", "[random]") {
    for (const double p : {0.1, 0.5, 0.9}) {
        Generator generator(4);
        const Tensor x = require_grad(ones({many}, DType::f32, Device{}));
        const Tensor y = dropout(x, p, true, &generator);
        double kept = 0;
        int odd = 0;
        for (const float v : y.to_vector<float>()) {
            kept += v != 0;
            odd += v != 0 && std::abs(v - 1 / (1 - std::round(p * 65536) / 65536)) > 1e-5;
        }
        CHECK(odd == 0);
        CHECK(std::abs(kept / double(many) - (1 - p)) < 5 * std::sqrt(p * (1 - p) / double(many)) + 0x1p-16);
        backward(sum(y));
        CHECK(x.grad().to_vector<float>() == y.to_vector<float>());
    }
}

TEST_CASE("a mask does not depend on how the batch is cut", "[random]") {
    const std::int64_t samples = 7, width = 37;
    const auto masked = [&](std::int64_t first, std::int64_t count) {
        ThreadState state = thread_state();
        state.random_scope = {true, first, count};
        const ThreadStateGuard guard(state);
        Generator generator(6);
        return dropout(ones({count, width}, DType::f32, Device{}), 0.5, true, &generator).to_vector<float>();
    };
    const std::vector<float> whole = masked(0, samples);
    std::vector<float> parts = masked(0, 3), rest = masked(3, 4);
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(whole == parts);
    const std::vector<float> row(whole.begin(), whole.begin() + width);
    CHECK(row != masked(1, 1));
}

TEST_CASE("random numbers do not depend on the number of threads", "[random][threads]") {
    const auto draw = [](int n) {
        const int before = thread_count();
        set_thread_count(n);
        Generator generator(5);
        std::vector<float> all = normal({300000}, 0, 1, DType::f32, Device{}, &generator).to_vector<float>();
        const std::vector<float> more =
            dropout(ones({300000}, DType::f32, Device{}), 0.3, true, &generator).to_vector<float>();
        all.insert(all.end(), more.begin(), more.end());
        set_thread_count(before);
        return all;
    };
    const std::vector<float> one = draw(1);
    CHECK(draw(2) == one);
    CHECK(draw(3) == one);
}

TEST_CASE("BB-116 dropout at the ends of its range", "[random]") {
    const Tensor x = require_grad(Tensor::from({1.f, 2.f, 3.f}, Device{}));
    const Tensor none = dropout(x, 1);
    CHECK(differs(none, {0, 0, 0}, exactly) == "");
    backward(sum(none));
    CHECK(differs(x.grad(), {0, 0, 0}, exactly) == "");
    zero_grad(x);
    const Tensor all = dropout(x, 0);
    CHECK(differs(all, {1, 2, 3}, exactly) == "");
    backward(sum(all));
    CHECK(differs(x.grad(), {1, 1, 1}, exactly) == "");
    for (const double p : {-0.1, 1.5, double(NAN)}) {
        const std::string error = error_of([&] { dropout(x, p); });
        INFO(error);
        CHECK(contains(error, "dropout: "));
        CHECK(contains(error, text(p)));
    }
}

TEST_CASE("BB-117 an infinite input is dropped to zero or kept, never NaN", "[random]") {
    Generator generator(3);
    int zeros_seen = 0, others = 0;
    for (const float v :
         dropout(full({1000}, INFINITY, DType::f32, Device{}), 0.1, true, &generator).to_vector<float>()) {
        zeros_seen += v == 0;
        others += v != 0 && v != INFINITY;
    }
    CHECK(others == 0);
    CHECK(zeros_seen > 50);
    CHECK(zeros_seen < 160);
}

TEST_CASE("BB-121 the mask follows the seed and the number of draws, nothing else", "[random]") {
    const auto mask_after = [](int draws) {
        manual_seed(123);
        const Tensor x = ones({3, 3}, DType::f32, Device{});
        for (int i = 0; i < draws; ++i) dropout(ones({1 + i * 50}, DType::f32, Device{}), 0.5);
        for (int i = 0; i < 3; ++i) dropout(x, 0.5, false);  // outside training nothing is drawn
        return dropout(x, 0.5).to_vector<float>();
    };
    for (int n = 1; n <= 4; ++n) CHECK(mask_after(n) == mask_after(n));
    CHECK(mask_after(1) != mask_after(2));
    manual_seed(123);
    dropout(ones({70}, DType::f32, Device{}), 0.5);
    const Generator saved = default_generator();
    const std::vector<float> next = dropout(ones({64}, DType::f32, Device{}), 0.5).to_vector<float>();
    default_generator() = saved;
    CHECK(dropout(ones({64}, DType::f32, Device{}), 0.5).to_vector<float>() == next);
}

TEST_CASE("BB-122 normal numbers in odd counts", "[random]") {
    for (const Shape& shape : {Shape{1}, Shape{3}, Shape{5, 3}, Shape{(1 << 20) + 1}}) {
        INFO(to_string(shape));
        Generator generator(10);
        std::vector<float> last;
        for (int i = 0; i < (shape.product() > 1000 ? 2 : 20); ++i) {
            const Tensor x = normal(shape, 0, 1, DType::f32, Device{}, &generator);
            const Tensor guard = full(shape, 7, DType::f32, Device{});
            last.push_back(x.to_vector<float>().back());
            CHECK(guard.to_vector<float>() == std::vector<float>(std::size_t(shape.product()), 7));
            if (shape.product() > 1000) {
                const Moments m = moments(x);
                CHECK(std::abs(m.mean) < 0.01);
                CHECK(std::abs(m.deviation - 1) < 0.01);
            }
        }
        for (const float v : last) CHECK(v != 0);
        for (std::size_t i = 1; i < last.size(); ++i) CHECK(last[i] != last[i - 1]);
    }
}

}  // namespace
}  // namespace gradus::tests
