// No op mixes devices, or crashes on an undefined tensor.
#include <cmath>
#include <cstdlib>

#include "gradus/autograd/node.h"
#include "gradus/tests/op_table.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

// Three logical CPU devices for this program, unless the environment says otherwise; read before main by nobody.
[[maybe_unused]] const int more_devices = setenv("GRADUS_CPU_DEVICES", "3", 0);

Tensor f32(const Shape& shape) { return zeros(shape, DType::f32, Device{}); }

template <class Call>
void refuses(const std::string& wanted, Call call) {
    INFO("wanted: " << wanted);
    CHECK(error_of(call) == wanted);
}

bool second_device() {
    if (device_count(Device::cpu) >= 2) return true;
    WARN("not run: GRADUS_CPU_DEVICES is 1");
    return false;
}
const Device other{Device::cpu, 1};

TEST_CASE("operands on two devices are named with their shapes and the fix", "[ops][errors]") {
    if (!second_device()) return;
    const Tensor here = f32({2, 3}), there = zeros({2, 3}, DType::f32, other);
    refuses("add: the operands are on two devices: a (2, 3) on cpu, b (2, 3) on cpu:1: move one with to(b, cpu)",
            [&] { here + there; });
    refuses("sub: the operands are on two devices: a (2, 3) on cpu:1, b (2, 3) on cpu: move one with to(b, cpu:1)",
            [&] { there - here; });
    refuses("greater: the operands are on two devices: a (2, 3) on cpu, b (2, 3) on cpu:1: move one with to(b, cpu)",
            [&] { greater(here, there); });
    refuses("matmul: the operands are on two devices: a (2, 3) on cpu, b (3, 2) on cpu:1: move one with to(b, cpu)",
            [&] { matmul(here, transpose(there)); });
    refuses(
        "mse_loss: the operands are on two devices: x (2, 3) on cpu, target (2, 3) on cpu:1: move one with to(target, "
        "cpu)",
        [&] { mse_loss(here, there); });
    refuses(
        "cat: the operands are on two devices: the first tensor (2, 3) on cpu, a later one (2, 3) on cpu:1: move one "
        "with to(a later one, cpu)",
        [&] {
            cat({here, there});
        });

    CHECK(to(there, Device{}).device() == Device{});
    copy_(here, there);
}

TEST_CASE("every op of several operands refuses two devices, and works on a device of its own", "[ops][errors]") {
    if (!second_device()) return;
    for (const OpRow& row : op_table()) {
        const auto& shapes = row.shapes[0];
        Tensors xs, moved;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            xs.push_back(draw(row.operands[i], shapes[i], DType::f32, i + 1));
            moved.push_back(to(xs.back(), other));
        }
        INFO(row.name);
        if (row.name != "to") CHECK(row.call(moved).device() == other);
        for (std::size_t i = 0; i < xs.size() && xs.size() > 1; ++i) {
            Tensors mixed = xs;
            mixed[i] = moved[i];
            const std::string error = error_of([&] { row.call(mixed); });
            INFO(error);
            CHECK(contains(error, row.name.substr(0, row.name.find(' '))));
            CHECK(contains(error, "two devices"));
            CHECK(contains(error, "cpu:1"));
        }
    }
}

TEST_CASE("every op refuses undefined operands and never crashes on them", "[ops][errors]") {
    for (const OpRow& row : op_table()) {
        const auto& shapes = row.shapes[0];
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            // A bias, a norm's weight and a mask may be left out.
            if (i >= 2 && (row.name.rfind("linear", 0) == 0 || row.name.rfind("scaled_dot", 0) == 0)) continue;
            if (i >= 2 && row.name.rfind("dropout_add_layer_norm", 0) == 0) continue;
            if (i >= 1 && (row.name.rfind("layer_norm", 0) == 0 || row.name.rfind("rms_norm", 0) == 0)) continue;
            Tensors xs;
            for (std::size_t k = 0; k < shapes.size(); ++k)
                xs.push_back(k == i ? Tensor() : draw(row.operands[k], shapes[k], DType::f32, k + 1));
            INFO(row.name << ", operand " << i);
            CHECK(contains(error_of([&] { row.call(xs); }), "undefined"));
        }
    }
}

}  // namespace
}  // namespace gradus::tests
