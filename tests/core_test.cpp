// Devices, tensors and their handles, storages and versions, errors.
#include <cmath>

#include "gradus/core/stream.h"
#include "gradus/core/tensor.h"
#include "gradus/core/thread_state.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

TEST_CASE("device names are read strictly", "[core]") {
    CHECK(Device::parse("cpu") == Device{Device::cpu, 0});
    CHECK(Device::parse("cpu:2") == Device{Device::cpu, 2});
    CHECK(Device::parse("cuda:13") == Device{Device::cuda, 13});
    CHECK(to_string(Device{}) == "cpu");
    CHECK(to_string(Device{Device::cpu, 1}) == "cpu:1");
    CHECK(to_string(Device{Device::cuda, 0}) == "cuda:0");
    CHECK(error_of([] { Device::parse("cuda"); }) == "device: \"cuda\" needs a card's number: write \"cuda:0\"");
    for (const char* bad : {"", "gpu", "CPU", "cpu:", "cpu:-1", "cpu:1x", "cpu: 1", "cuda:99999999999", "cpu:0:1"}) {
        INFO(bad);
        CHECK(error_of([&] { Device::parse(bad); }) ==
              text("device: expected \"cpu\", \"cpu:N\" or \"cuda:N\": got \"", bad, "\""));
    }
}

TEST_CASE("a device that is not there says why and what to do", "[core]") {
    const int cpus = device_count(Device::cpu);
    CHECK(cpus >= 1);
    CHECK(error_of([&] {
              Tensor::empty({1}, DType::f32, Device{Device::cpu, 64});
          }) ==
          text("device: cpu:64 does not exist: there are ", cpus, " CPU devices: set GRADUS_CPU_DEVICES to have more"));
    CHECK(contains(error_of([] { Tensor::empty({1}, DType::f32, Device{Device::cuda, 4000}); }), "cuda:4000"));
    const std::vector<DeviceInfo> all = devices();
    REQUIRE(all.size() >= 1);
    CHECK(all[0].device == Device{});
    CHECK(all[0].memory > 0);
    CHECK(!all[0].name.empty());
}

TEST_CASE("a tensor says what it is", "[core]") {
    const Tensor x = Tensor::from({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3}, Device{});
    CHECK(x.shape() == Shape{2, 3});
    CHECK(x.size(-1) == 3);
    CHECK(x.rank() == 2);
    CHECK(x.numel() == 6);
    CHECK(x.dtype() == DType::f32);
    CHECK(x.device() == Device{});
    CHECK(x.is_contiguous());
    CHECK(x.is_leaf());
    CHECK_FALSE(x.requires_grad());
    CHECK_FALSE(x.grad().defined());
    CHECK(x.to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6});
    CHECK(error_of([&] { x.size(2); }) == "size: axis 2 is out of range for rank 2");
    CHECK(error_of([&] { x.item(); }) == "item: needs a tensor of one element: got shape (2, 3)");
    CHECK(error_of([&] { x.data<double>(); }) == "data: the tensor holds f32, asked for f64");
    CHECK(error_of([] { Tensor::from({1.f, 2.f}, {3}, Device{}); }) == "from: 2 values do not fill the shape (3,)");
    CHECK(error_of([] { Tensor::empty({2, -1}, DType::f32, Device{}); }) == "empty: a size is negative: (2, -1)");
}

TEST_CASE("an undefined handle says so whatever is asked of it", "[core]") {
    const Tensor none;
    CHECK_FALSE(none.defined());
    const std::string wanted = "tensor: this handle is undefined: assign a tensor first";
    CHECK(error_of([&] { none.shape(); }) == wanted);
    CHECK(error_of([&] { none.dtype(); }) == wanted);
    CHECK(error_of([&] { none.device(); }) == wanted);
    CHECK(error_of([&] { none.item(); }) == wanted);
    CHECK(error_of([&] { none.to_vector<float>(); }) == wanted);
    CHECK(error_of([&] { none.grad(); }) == wanted);
}

TEST_CASE("every dtype goes in and comes out", "[core]") {
    CHECK(Tensor::from({true, false, true}, Device{}).to_vector<int>() == std::vector<int>{1, 0, 1});
    CHECK(Tensor::from(std::vector<std::uint8_t>{0, 255}, Device{}).to_vector<int>() == std::vector<int>{0, 255});
    CHECK(Tensor::from(std::vector<float16>{float16(0.5f)}, Device{}).item<float>() == 0.5f);
    CHECK(Tensor::from(std::vector<bfloat16>{bfloat16(-2.f)}, Device{}).item<int>() == -2);
    const std::int64_t large = (std::int64_t(1) << 53) + 1;  // no double holds it
    CHECK(Tensor::from({large}, Device{}).item<std::int64_t>() == large);
    CHECK(Tensor::from({large}, Device{}).to_vector<std::int64_t>()[0] == large);
    CHECK(Tensor::scalar(2.5, DType::f64, Device{}).item() == 2.5);
    CHECK(Tensor::scalar(2.5, DType::f64, Device{}).shape() == Shape{});
    CHECK(error_of([] { Tensor::scalar(300, DType::u8, Device{}); }) ==
          "scalar: the value 300 does not fit into u8: its range is [0, 255]");
}

TEST_CASE("copies of a handle share storage, layout and past", "[core]") {
    const Tensor x = Tensor::from({1.f, 2.f}, Device{});
    const Tensor y = x, other = x.without_past();
    CHECK(x.identity() == y.identity());
    CHECK(x.identity() != other.identity());
    CHECK(&x.storage() == &other.storage());
    y.data<float>()[0] = 5;
    CHECK(other.to_vector<float>() == std::vector<float>{5, 2});
}

TEST_CASE("become puts another storage behind every copy of a handle", "[core]") {
    const Tensor x = Tensor::from({1.f, 2.f}, Device{}), alias = x;
    x.become(Tensor::from({3.0, 4.0, 5.0}, Device{}));
    CHECK(alias.shape() == Shape{3});
    CHECK(alias.dtype() == DType::f64);
    CHECK(alias.to_vector<double>() == std::vector<double>{3, 4, 5});
}

TEST_CASE("a strided view reads and writes its own places only", "[core]") {
    const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2}, Device{});
    const Tensor odd = x.with_layout(x.layout().slice(2, 1, 1, 1));
    CHECK(odd.to_vector<int>() == std::vector<int>{1, 3, 5, 7});
    const std::int32_t values[] = {-1, -3, -5, -7};
    const std::uint32_t version = x.version();
    copy_from_host(odd, values);
    CHECK(x.to_vector<int>() == std::vector<int>{0, -1, 2, -3, 4, -5, 6, -7});
    CHECK(x.version() == version + 1);
    const Tensor row = Tensor::from({1, 2}, {1, 2}, Device{});
    const Tensor expanded = row.with_layout(row.layout().expand("expand", {3, 2}));
    CHECK(expanded.to_vector<int>() == std::vector<int>{1, 2, 1, 2, 1, 2});
    CHECK(error_of([&] { copy_from_host(expanded, values); }) ==
          "copy: the destination (3, 2) is an expanded view: several indices share one element");
}

TEST_CASE("errors join their parts and name the module that runs", "[core]") {
    CHECK(text("a ", 1, ' ', 2.5, ' ', true, ' ', Shape{2}, ' ', DType::bf16, ' ', Device{}) ==
          "a 1 2.5 true (2,) bf16 cpu");
    CHECK(text(0.1, ' ', 1e300, ' ', INFINITY, ' ', -0.0) == "0.1 1e+300 inf -0");
    struct Named : Frame {
        std::string path() const override { return "encoder.layers.2"; }
    } frame;
    ThreadState state = thread_state();
    state.frame = &frame;
    const ThreadStateGuard guard(state);
    CHECK(error_of([] { check(false, "op: wrong: ", 3); }) == "op: wrong: 3 (in encoder.layers.2)");
}

TEST_CASE("the thread's state is restored on every way out", "[core]") {
    CHECK(thread_state().grad_mode);
    ThreadState state = thread_state();
    state.grad_mode = false;
    state.anomaly = true;
    try {
        const ThreadStateGuard guard(state);
        CHECK_FALSE(thread_state().grad_mode);
        throw 1;
    } catch (int) {
    }
    CHECK(thread_state().grad_mode);
    CHECK_FALSE(thread_state().anomaly);
}

TEST_CASE("streams and events of the CPU are done at once", "[core]") {
    const Stream stream{Device{}};
    Event event;
    CHECK(event.records() == 0);
    event.record(stream);
    CHECK(event.records() == 1);
    CHECK(event.reached());
    stream.synchronize();
    CHECK(contains(error_of([] { Stream(Device{Device::cpu, 77}); }), "cpu:77 does not exist"));
}

}  // namespace
}  // namespace gradus::tests
