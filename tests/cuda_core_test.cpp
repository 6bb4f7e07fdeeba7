// Cards, streams, pools and copies: what must hold before any op is right. Runs on real and on emulated cards.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/core/storage.h"
#include "gradus/core/stream.h"
#include "gradus/core/transfer.h"
#include "gradus/nn/linear.h"
#include "gradus/nn/optimizer.h"
#include "gradus/tests/cards.h"
#ifdef GRADUS_EMULATED
#include "gradus/core/launch.h"
#endif

namespace gradus::tests {
namespace {

std::vector<float> counting(std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(i) + 0.5f;
    return values;
}

TEST_CASE("a card that is not there is an error that says why and what to do", "[cuda][core]") {
    const int count = device_count(Device::cuda);
    const std::string message = error_of([&] { Tensor::empty({1}, DType::f32, card(count)); });
    CHECK(contains(message, to_string(card(count))));
    if (count > 0)
        CHECK(contains(message, text("there are ", count, " cards, cuda:0 to cuda:", count - 1)));
    else
        CHECK(contains(message, "or use \"cpu\""));
}

TEST_CASE("cards are listed with name, UUID and memory, no two alike", "[cuda][core]") {
    if (!have_cards(1)) return;
    std::vector<DeviceInfo> cards;
    for (const DeviceInfo& info : devices())
        if (info.device.kind == Device::cuda) cards.push_back(info);
    REQUIRE(int(cards.size()) == device_count(Device::cuda));
    for (const DeviceInfo& info : cards) {
        CHECK(!info.name.empty());
        CHECK(info.uuid.rfind("GPU-", 0) == 0);
        CHECK(info.memory > 0);
    }
    if (cards.size() > 1) CHECK(cards[0].uuid != cards[1].uuid);
}

TEST_CASE("BB-079 elements go to a card and back in every dtype and layout", "[cuda][core]") {
    if (!have_cards(1)) return;
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
        const Tensor x = cast(Tensor::from(counting(60), {3, 4, 5}, Device{}), type);
        for (const Device there : {card(0), last_card()}) {
            const Tensor y = to(x, there);
            CHECK(y.device() == there);
            CHECK(y.to_vector<double>() == x.to_vector<double>());
            CHECK(to(y, Device{}).to_vector<double>() == x.to_vector<double>());
            CHECK(transpose(y).to_vector<double>() == transpose(x).to_vector<double>());
            CHECK(slice(y, 2, 1, 5, 2).to_vector<double>() == slice(x, 2, 1, 5, 2).to_vector<double>());
            CHECK(to(transpose(y), Device{}).to_vector<double>() == transpose(x).to_vector<double>());
        }
    }
    const Tensor flags = to(Tensor::from({true, false, true}, Device{}), last_card());
    CHECK(flags.to_vector<bool>() == std::vector<bool>{true, false, true});
    CHECK(to(Tensor::empty({0, 3}, DType::f32, Device{}), last_card()).shape() == Shape{0, 3});
}

TEST_CASE("host elements written through a view of a card's tensor land where they belong", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Tensor x = zeros({2, 3}, DType::f32, card(0));
    const std::vector<float> column{7, 8};
    copy_from_host(x.with_layout(x.layout().slice(1, 1, 1, 1)), column.data());
    CHECK(x.to_vector<float>() == std::vector<float>{0, 7, 0, 0, 8, 0});
}

TEST_CASE("one element of a large tensor is read without the rest", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Tensor x = to(Tensor::from(counting(1000), {10, 100}, Device{}), card(0));
    CHECK(select(select(x, 0, 3), 0, 7).item<float>() == 307.5f);
}

TEST_CASE("BB-080 from card to card, also out of a view, also when the source ends at once", "[cuda][core]") {
    if (!have_cards(2)) return;
    CHECK(peers(card(0), card(0)));
#ifdef GRADUS_EMULATED
    CHECK(peers(card(0), card(1)));
#endif
    CHECK_FALSE(peers(card(0), Device{}));
    const Tensor x = to(Tensor::from(counting(5000), Device{}), card(0));
    const Tensor y = to(mul(x, 2.0), card(1));
    CHECK(y.device() == card(1));
    CHECK(mul(y, 0.5).to_vector<float>() == counting(5000));
    const Tensor matrix = reshape(x, {50, 100});
    CHECK(to(transpose(matrix), card(1)).to_vector<float>() == transpose(matrix).to_vector<float>());
    // The source may end at once: its memory must not be reused before the copy is done.
    Tensor z;
    {
        const Tensor source = full({5000}, 3, DType::f32, card(0));
        z = to(source, card(1));
    }
    const Tensor other = full({5000}, 4, DType::f32, card(0));
    CHECK(z.to_vector<float>() == std::vector<float>(5000, 3));
    CHECK(other.to_vector<float>() == std::vector<float>(5000, 4));
}

TEST_CASE("gradients cross from a card to the CPU and to another card", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Tensor x = require_grad(Tensor::from({1.0f, 2.0f, 3.0f}, Device{}));
    const Tensor y = to(mul(to(x, card(0)), 2.0), last_card());
    backward(sum(mul(y, y)));
    CHECK(x.grad().device() == Device{});
    CHECK(x.grad().to_vector<float>() == std::vector<float>{8, 16, 24});
}

TEST_CASE("a block goes to the next tensor of its stream at once, to another stream after an event", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Device there = last_card();
    const Stream other(there);
    CHECK(!(other == Stream::current(there)));
    const Tensor z = Tensor::empty({4096}, DType::f32, there);
    void* block = nullptr;
    {
        const Tensor x = full({4096}, 1, DType::f32, there);
        block = x.address();
        copy_(z, x);
    }
    {
        const Tensor again = full({4096}, 2, DType::f32, there);
        CHECK(again.address() == block);
        copy_(z, again);
    }
    {
        const StreamGuard guard(other);
        CHECK(Stream::current(there) == other);
        const Tensor elsewhere = full({4096}, 5, DType::f32, there);
        CHECK(elsewhere.to_vector<float>() == std::vector<float>(4096, 5));
    }
    CHECK(z.to_vector<float>() == std::vector<float>(4096, 2));
}

TEST_CASE("BB-147 memory that another stream still reads is not given away", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Device there = card(0);
    const Stream other(there);
    Tensor z;
    {
        const Tensor x = full({100000}, 1, DType::f32, there);
        Event ready;
        ready.record(Stream::current(there));
        ready.wait(other);
        const StreamGuard guard(other);
        z = mul(x, 3.0);  // reads x on the other stream, after which x ends on its own
    }
    const Tensor y = full({100000}, 2, DType::f32, there);
    other.synchronize();
    const StreamGuard guard(other);
    CHECK(z.to_vector<float>() == std::vector<float>(100000, 3));
    CHECK(y.numel() == 100000);
}

TEST_CASE("events are reached when their stream is done", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Stream stream(card(0));
    Event event;
    CHECK(event.reached());
    event.record(stream);
    event.wait();
    CHECK(event.reached());
    CHECK(event.records() == 1);
    synchronize(card(0));
}

TEST_CASE("BB-082 page-locked memory: copies from it and to it are right, and blocks come back when they are done",
          "[cuda][core]") {
    if (!have_cards(1)) return;
    for (int round = 0; round < 3; ++round) {
        Tensor there;
        {
            const Tensor host = Tensor::empty_pinned({1000}, DType::f32);
            CHECK(host.is_pinned());
            copy_from_host(host, counting(1000).data());
            there = to(host, card(0));
        }
        const Tensor next = Tensor::empty_pinned({1000}, DType::f32);
        fill_(next, -1);
        CHECK(there.to_vector<float>() == counting(1000));
    }
}

TEST_CASE("BB-082 the host may write what it has copied from as soon as a copy returns", "[cuda][core]") {
    if (!have_cards(1)) return;
    for (const bool pinned : {false, true}) {
        const Tensor host =
            pinned ? Tensor::empty_pinned({1000}, DType::f32) : Tensor::empty({1000}, DType::f32, Device{});
        copy_from_host(host, counting(1000).data());
#ifdef GRADUS_EMULATED
        const std::int64_t waits = emulation::host_waits();
#endif
        const Tensor there = to(host, card(0));
#ifdef GRADUS_EMULATED
        CHECK(emulation::host_waits() == waits);  // a few bytes are put aside
#endif
        fill_(host, -1);
        const Tensor back = to(there, Device{});
        CHECK(back.to_vector<float>() == counting(1000));
        copy_(host, there);
        CHECK(host.to_vector<float>() == counting(1000));
    }
    const std::int64_t many = (5 << 20) / 4;  // too many to be put aside
    const Tensor host = full({many}, 3, DType::f32, Device{});
    const Tensor there = to(host, card(0));
    fill_(host, -1);
    CHECK(sum(there).item() == 3.0 * double(many));
}

TEST_CASE("copy_async_ between page-locked memory and a card is done when its event is reached", "[cuda][core]") {
    if (!have_cards(1)) return;
    const Tensor host = Tensor::empty_pinned({1000}, DType::f32), back = Tensor::empty_pinned({1000}, DType::f32);
    copy_from_host(host, counting(1000).data());
    const Tensor there = zeros({1000}, DType::f32, card(0));
    const std::uint32_t version = there.storage().version();
    copy_async_(there, host);
    CHECK(there.storage().version() != version);
    const Event done = copy_async_(back, there);
    done.wait();
    CHECK(back.to_vector<float>() == counting(1000));
    const Tensor plain = zeros({1000}, DType::f32, Device{});
    CHECK(contains(error_of([&] { copy_async_(plain, there); }), "needs page-locked memory of the CPU"));
    CHECK(contains(error_of([&] { copy_async_(there, there); }), "got cuda:0 and cuda:0"));
    CHECK(error_of([&] { copy_async_(slice(there, 0, 0, 5), host); }) ==
          "copy_async_: one shape and dtype are needed: got (1000,) f32 to (5,) f32");
    CHECK(error_of([&] { copy_async_(slice(there, 0, 0, 1000, 2), slice(host, 0, 0, 500)); }) ==
          "copy_async_: both must be contiguous: use copy_");
}

TEST_CASE("BB-080 the source of a copy between cards may be written as soon as the copy returns", "[cuda][core]") {
    if (!have_cards(2)) return;
    for (int i = 0; i < 20; ++i) {
        const Tensor x = full({100}, i + 1, DType::f32, card(0));
        const Tensor y = to(x, card(1));
        fill_(x, -1);
        CHECK(y.to_vector<float>() == std::vector<float>(100, float(i + 1)));
    }
}

TEST_CASE("out of memory on a card names what was asked for, and the card goes on", "[cuda][core]") {
    if (!have_cards(1)) return;
    const PoolStatistics before = pool_statistics(last_card());
    limit_memory(before.in_use + before.cached + (std::int64_t(8) << 20), last_card());
    const std::string message = error_of([] { Tensor::empty({1 << 30}, DType::f32, last_card()); });
    CHECK(contains(message, "out of memory on " + to_string(last_card()) + ": requested 4294967296 bytes, in use "));
    CHECK(contains(message, "use a smaller batch or free tensors"));
    limit_memory(0, last_card());
    CHECK(full({3}, 2, DType::f32, last_card()).to_vector<float>() == std::vector<float>{2, 2, 2});
}

TEST_CASE("BB-087 ops run on their tensors' card, whichever is current", "[cuda][core]") {
    if (!have_cards(2)) return;
    const Tensor a = full({33}, 1, DType::f32, card(1)), b = full({33}, 2, DType::f32, card(0));
    const Tensor c = add(a, a), d = add(b, b);
    CHECK(c.device() == card(1));
    CHECK(d.device() == card(0));
    CHECK(c.to_vector<float>() == std::vector<float>(33, 2));
    CHECK(d.to_vector<float>() == std::vector<float>(33, 4));
}

TEST_CASE("operands on two devices are an error that names op, arguments, devices and the fix", "[cuda][core]") {
    if (!have_cards(2)) return;
    const Tensor a = ones({2, 3}, DType::f32, card(0)), b = ones({3, 2}, DType::f32, card(1));
    const std::string message = error_of([&] { matmul(a, b); });
    CHECK(contains(message, "matmul: "));
    CHECK(contains(message, "cuda:0"));
    CHECK(contains(message, "cuda:1"));
    CHECK(contains(message, "to("));
    Generator rng(1);
    Linear layer(3, 2, rng);
    layer.to(card(1));
    CHECK(contains(error_of([&] { layer(a); }), "cuda:1"));
}

#ifdef GRADUS_EMULATED
/// Runs tests of this program in a process of its own.
bool passes_alone(const std::string& environment, const std::string& tests) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    return std::system((environment + " '" + program + "' '" + tests + "' > /dev/null 2>&1").c_str()) == 0;
}

TEST_CASE("first work of a process on its last card", "[.][slow]") {
    const Stream other(last_card());
    const Tensor x = full({5000}, 2, DType::f32, last_card());
    {
        Event ready;
        ready.record(Stream::current(last_card()));
        ready.wait(other);
        const StreamGuard guard(other);
        CHECK(sum(mul(x, x)).item() == 20000);
        const Tensor pinned = Tensor::empty_pinned({5000}, DType::f32);
        copy_(pinned, x);
    }
    Adam adam({{"x", require_grad(x)}});
    assign_grad(x, ones_like(x));
    CHECK(adam.step({.clip_norm = 1}).item() > 0);
    CHECK(emulation::has_context(last_card().index));
    CHECK_FALSE(emulation::has_context(0));
}

TEST_CASE("BB-087 work on one card takes no memory on another", "[cuda][core]") {
    if (!have_cards(2)) return;
    CHECK(passes_alone("GRADUS_EMULATED_DEVICES=3", "first work of a process on its last card"));
}

TEST_CASE("without the pool a tensor's memory comes from the driver and goes back", "[cuda][core]") {
    if (!have_cards(1)) return;
    CHECK(passes_alone("GRADUS_POOL=off", "BB-079*"));
    CHECK(passes_alone("GRADUS_POOL=off", "softmax*card*"));
    CHECK_FALSE(passes_alone("GRADUS_POOL=maybe", "BB-079*"));
}
#endif

Tensor kept_to_the_end;

TEST_CASE("BB-088 a static tensor of a card outlives main", "[cuda][core]") {
    if (!have_cards(1)) return;
    kept_to_the_end = ones({1000}, DType::f32, card(0));
    CHECK(kept_to_the_end.numel() == 1000);  // its destructor runs after main: the program's exit status tells
}

#ifdef GRADUS_EMULATED
__global__ void broken_kernel(float* x) {
    if (threadIdx.x == 5) x[std::int64_t(1) << 32] = 1;
}

TEST_CASE("a fault of a kernel surfaces with its name, stays, and leaves the other card alone", "[cuda][core]") {
    if (!have_cards(2)) return;
    const Tensor x = ones({32}, DType::f32, card(1));
    const std::string first = error_of([&] {
        GRADUS_LAUNCH(broken_kernel, card(1), 1, 32, 0, x.data<float>());
        Stream::current(card(1)).synchronize();
    });
    CHECK(contains(first, "broken_kernel"));
    CHECK(contains(first, "thread"));
    const std::string later = error_of([&] { add(x, x).to_vector<float>(); });
    CHECK(contains(later, "cuda:1"));
    CHECK(contains(later, "broken_kernel"));
    CHECK(full({2}, 3, DType::f32, card(0)).to_vector<float>() == std::vector<float>{3, 3});
    emulation::reset_errors();
    detail::forget_card_errors();
    CHECK(add(x, x).to_vector<float>() == std::vector<float>(32, 2));
}
#endif

}  // namespace
}  // namespace gradus::tests
