// Tensors of more than 2^31 elements: on a real card with the memory for them.
#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

bool have_room(std::int64_t bytes) {
    for (const DeviceInfo& info : devices())
        if (info.device == Device{Device::cuda, 0} && !info.emulated && info.memory >= bytes) return true;
    WARN("not run: needs a real card with " << bytes / 1'000'000'000 << " GB");
    return false;
}

TEST_CASE("BB-006 softmax of more than 2^31 elements is right in the last row", "[cuda][rows][huge]") {
    if (!have_room(40'000'000'000)) return;
    const NoGrad scope;
    const std::int64_t width = 1024, rows = (std::int64_t(1) << 31) / width + 3;
    const Tensor x = zeros({rows, width}, DType::f32, card(0));
    Generator rng(1);
    const Tensor last = uniform({1, width}, -2, 2, DType::f32, Device{}, &rng);
    copy_(slice(x, 0, rows - 1, rows), last);
    const Tensor y = softmax(x, 1);
    CHECK(differs(slice(y, 0, rows - 1, rows), softmax(last, 1).to_vector<double>(), tolerance(DType::f32, width)) ==
          "");
    const Tensor others = slice(y, 0, 0, rows - 1);
    CHECK(min(others).item() == 1.0 / 1024);
    CHECK(max(others).item() == 1.0 / 1024);
    CHECK(sum(y).item() == Approx(double(rows)).epsilon(1e-6));
}

TEST_CASE("BB-007 a row of more than 2^31 elements", "[cuda][rows][huge]") {
    if (!have_room(40'000'000'000)) return;
    const NoGrad scope;
    const std::int64_t n = (std::int64_t(1) << 31) + 64;
    const Tensor x = zeros({1, n}, DType::f32, card(0));
    fill_(slice(x, 1, n - 1, n), 20);  // e^20 among n ones
    CHECK(argmax(x, 1).item<std::int64_t>() == n - 1);
    const Tensor y = softmax(x, 1);
    const double top = std::exp(20.0), total = top + double(n - 1);
    CHECK(slice(y, 1, n - 1, n).item() == Approx(top / total).epsilon(1e-4));
    CHECK(slice(y, 1, 0, 1).item() == Approx(1 / total).epsilon(1e-4));
    CHECK(sum(x).item() == 20);
}

TEST_CASE("BB-008 2^28 rows of nine elements", "[cuda][rows][huge]") {
    if (!have_room(40'000'000'000)) return;
    const NoGrad scope;
    const Tensor y = softmax(zeros({std::int64_t(1) << 28, 9}, DType::f32, card(0)), 1);
    CHECK(min(y).item() == Approx(1.0 / 9).epsilon(1e-6));
    CHECK(max(y).item() == Approx(1.0 / 9).epsilon(1e-6));
}

}  // namespace
}  // namespace gradus::tests
