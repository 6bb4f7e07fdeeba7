// Batches and the data loader: order, coverage, background work, resuming.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/data.h"
#include "gradus/tests/support.h"

using namespace gradus;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

/// Sample i is the number i.
struct Numbers {
    std::int64_t n;
    std::int64_t size() const { return n; }
    Batch batch(std::span<const std::int64_t> indices) const {
        Batch b;
        b["ids"] = Tensor::from(Indices(indices.begin(), indices.end()), Device{});
        return b;
    }
};

std::vector<Indices> epoch_of(DataLoader& loader) {
    std::vector<Indices> batches;
    while (const auto batch = loader.next()) batches.push_back(batch->at("ids").to_vector<std::int64_t>());
    return batches;
}

Indices joined(const std::vector<Indices>& batches) {
    Indices all;
    for (const Indices& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
    return all;
}

Indices first_numbers(std::int64_t n) {
    Indices all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), std::int64_t(0));
    return all;
}

}  // namespace

TEST_CASE("a batch holds tensors by name and moves as a whole", "[data]") {
    Batch b;
    b["ids"] = Tensor::from({1, 2, 3}, Device{});
    b["mask"] = Tensor::from({true, false, true}, Device{});
    b["images"] = Tensor::from({0.5f, 1.5f}, {1, 2}, Device{});
    const Batch& fixed = b;
    CHECK(fixed["ids"].dtype() == DType::i32);
    CHECK(fixed.size() == 3);
    CHECK(fixed.contains("mask"));
    CHECK(error_of([&] { fixed["masks"]; }) == "batch: there is no 'masks', there are: 'ids', 'mask', 'images'");
    CHECK(contains(error_of([] { Batch().at("x"); }), "there are: none"));
    const Batch same = b.to(Device{});
    CHECK(same["mask"].to_vector<bool>() == std::vector<bool>{true, false, true});
    CHECK(same["images"].address() == b["images"].address());
    b["late"];
    CHECK(contains(error_of([&] { b.to(Device{}); }), "'late' was never given a tensor"));
    CHECK(contains(error_of([&] { Batch({{"a", b["ids"]}, {"a", b["mask"]}}); }), "'a' is given twice"));
}

TEST_CASE("a batch moves to another device with every dtype", "[data]") {
    if (device_count(Device::cpu) < 2) return;  // needs GRADUS_CPU_DEVICES=2
    const Device other{Device::cpu, 1};
    Batch b;
    b["ids"] = Tensor::from({std::int64_t(4)}, Device{});
    b["mask"] = Tensor::from({true}, Device{});
    for (const auto& [name, tensor] : b.to(other)) CHECK(tensor.device() == other);
}

TEST_CASE("the shuffled order is a permutation that follows from seed and epoch", "[data]") {
    for (const std::int64_t n : {0, 1, 2, 10, 1000}) {
        Indices order = shuffled(n, 3, 0);
        CHECK(order == shuffled(n, 3, 0));
        std::sort(order.begin(), order.end());
        CHECK(order == first_numbers(n));
    }
    CHECK(shuffled(1000, 3, 0) != shuffled(1000, 3, 1));
    CHECK(shuffled(1000, 3, 0) != shuffled(1000, 4, 0));
    CHECK(shuffled(1000, 3, 0) != shuffled(1000, 3 + (std::uint64_t(1) << 40), 0));
    CHECK(shuffled(1000, 3, 0) != first_numbers(1000));
}

TEST_CASE("every order of four samples is equally likely", "[data]") {
    std::map<Indices, int> seen;
    constexpr int draws = 24000;
    for (int epoch = 0; epoch < draws; ++epoch) ++seen[shuffled(4, 11, epoch)];
    REQUIRE(seen.size() == 24);
    double chi2 = 0;
    for (const auto& [order, count] : seen) chi2 += (count - draws / 24.0) * (count - draws / 24.0) / (draws / 24.0);
    CHECK(chi2 < 49.7);  // 23 degrees of freedom, p = 0.001
    CHECK(chi2 > 6);     // and not suspiciously even
}

TEST_CASE("an epoch gives every sample once", "[data][threads]") {
    const Numbers data{23};
    for (const int prefetch : {0, 1, 4}) {
        DataLoader loader(data, {.batch_size = 5, .seed = 7, .prefetch = prefetch});
        CHECK(loader.batches() == 5);
        const auto first = epoch_of(loader), second = epoch_of(loader);
        REQUIRE(first.size() == 5);
        CHECK(first[4].size() == 3);
        CHECK(joined(first) == shuffled(23, 7, 0));
        CHECK(joined(second) == shuffled(23, 7, 1));
        CHECK(loader.epoch() == 2);
        CHECK(loader.position() == 0);
    }
    DataLoader plain(data, {.batch_size = 5, .shuffle = false, .drop_last = true});
    CHECK(plain.batches() == 4);
    CHECK(joined(epoch_of(plain)) == first_numbers(20));
}

TEST_CASE("a plan decides which samples form the batches", "[data][threads]") {
    const Numbers data{6};
    LoaderOptions options;
    options.plan = [](std::int64_t epoch) {
        return epoch % 2 == 0 ? std::vector<Indices>{{5, 0}, {1, 2, 3, 4}} : std::vector<Indices>{{0, 1, 2, 3, 4, 5}};
    };
    DataLoader loader(data, options);
    CHECK(loader.batches() == 2);
    CHECK(epoch_of(loader) == std::vector<Indices>{{5, 0}, {1, 2, 3, 4}});
    CHECK(loader.batches() == 1);
    CHECK(epoch_of(loader) == std::vector<Indices>{{0, 1, 2, 3, 4, 5}});
    options.plan = [](std::int64_t) { return std::vector<Indices>{{6}}; };
    DataLoader wrong(data, options);
    CHECK(contains(error_of([&] { wrong.next(); }), "names sample 6 of 6"));
}

TEST_CASE("a loader continues bit for bit from a saved position", "[data][threads]") {
    const Numbers data{31};
    const LoaderOptions options{.batch_size = 4, .seed = 5};
    for (const int given : {0, 3, 8, 11}) {
        DataLoader loader(data, options);
        for (int left = given; left > 0;)
            if (loader.next()) --left;
        Values values;
        loader.save(values);
        DataLoader resumed(data, options);
        resumed.load(values);
        CHECK(resumed.epoch() == loader.epoch());
        CHECK(resumed.position() == loader.position());
        CHECK(epoch_of(resumed) == epoch_of(loader));
        CHECK(epoch_of(resumed) == epoch_of(loader));
    }
}

TEST_CASE("a position of other data is refused", "[data]") {
    const Numbers data{31}, larger{32};
    DataLoader loader(data, {.batch_size = 4, .seed = 5});
    Values values;
    loader.save(values);
    DataLoader sized(larger, {.batch_size = 4, .seed = 5}), seeded(data, {.batch_size = 4, .seed = 6}),
        cut(data, {.batch_size = 5, .seed = 5}), plain(data, {.batch_size = 4, .shuffle = false, .seed = 5});
    CHECK(contains(error_of([&] { sized.load(values); }), "the number of samples was 31, is 32"));
    CHECK(contains(error_of([&] { seeded.load(values); }), "the seed was 5, is 6"));
    CHECK(contains(error_of([&] { cut.load(values); }), "the number of batches was 8, is 7"));
    CHECK(contains(error_of([&] { plain.load(values); }), "the order was shuffled, is plain"));
    values["data.position"] = std::int64_t(9);
    CHECK(contains(error_of([&] { loader.load(values); }), "has 8 batches: there is no position 9"));
    CHECK(loader.position() == 0);
}

TEST_CASE("an exception of the data set arrives at the consumer, who may try again", "[data][threads]") {
    std::atomic<int> failures = 1;
    for (const int prefetch : {0, 3}) {
        failures = 1;
        const Numbers data{6};
        DataLoader loader(6,
                          [&](std::span<const std::int64_t> indices) {
                              if (indices[0] == 4 && failures.fetch_sub(1) > 0)
                                  throw std::out_of_range("sample 4 is broken");
                              return data.batch(indices);
                          },
                          {.batch_size = 2, .shuffle = false, .prefetch = prefetch});
        CHECK(loader.next()->at("ids").to_vector<std::int64_t>() == Indices{0, 1});
        CHECK(loader.next()->at("ids").to_vector<std::int64_t>() == Indices{2, 3});
        CHECK_THROWS_AS(loader.next(), std::out_of_range);
        CHECK(loader.position() == 2);
        CHECK(loader.next()->at("ids").to_vector<std::int64_t>() == Indices{4, 5});
        CHECK_FALSE(loader.next().has_value());
    }
}

TEST_CASE("a loader stops cleanly at any moment", "[data][threads]") {
    const Numbers data{1000};
    for (int given = 0; given < 6; ++given) {
        DataLoader loader(data, {.batch_size = 3, .prefetch = 2});
        for (int i = 0; i < given; ++i) loader.next();
        if (given == 5) loader.seek(3, 10);
    }
    DataLoader loader(data, {.batch_size = 3});
    loader.next();
    loader.seek(2, 333);
    CHECK(loader.next()->at("ids").to_vector<std::int64_t>() == Indices{shuffled(1000, 0, 2).back()});
    CHECK_FALSE(loader.next().has_value());
    CHECK(loader.epoch() == 3);
}

TEST_CASE("the worker has its caller's thread state, but not its stack frames", "[data][threads]") {
    struct Named final : Frame {
        std::string path() const override { return "encoder"; }
    } frame;
    std::atomic<bool> grad = true, anomaly = false, framed = true;
    const Numbers data{4};
    DataLoader loader(4, [&](std::span<const std::int64_t> indices) {
        grad = thread_state().grad_mode, anomaly = thread_state().anomaly, framed = thread_state().frame != nullptr;
        return data.batch(indices);
    });
    ThreadState state;
    state.grad_mode = false, state.anomaly = true, state.frame = &frame;
    const ThreadStateGuard guard(state);
    loader.next();
    CHECK_FALSE(grad);
    CHECK(anomaly);
    CHECK_FALSE(framed);
}

TEST_CASE("random ops in a data set depend on the batch, not on threads or on who asks", "[data][threads]") {
    const auto noisy = [](std::span<const std::int64_t> indices) {
        return Batch({{"x", uniform({std::int64_t(indices.size())}, 0, 1, DType::f64, Device{})}});
    };
    const auto draw = [&](int prefetch, std::int64_t from) {
        DataLoader loader(8, noisy, {.batch_size = 2, .prefetch = prefetch});
        loader.seek(1, from);
        std::vector<double> all;
        while (const auto batch = loader.next())
            for (const double x : batch->at("x").to_vector<double>()) all.push_back(x);
        return all;
    };
    const Generator before = default_generator();
    const auto whole = draw(0, 0);
    CHECK(default_generator() == before);
    CHECK(draw(3, 0) == whole);
    CHECK(draw(1, 2) == std::vector<double>(whole.begin() + 4, whole.end()));
    CHECK(std::set<double>(whole.begin(), whole.end()).size() == 8);
}

TEST_CASE("the loader reports how long it was waited for", "[data][threads]") {
    const Numbers data{8};
    const auto pause = std::chrono::milliseconds(20);
    DataLoader slow(8,
                    [&](std::span<const std::int64_t> indices) {
                        std::this_thread::sleep_for(pause);
                        return data.batch(indices);
                    },
                    {.batch_size = 2, .prefetch = 0});
    epoch_of(slow);
    CHECK(slow.wait_seconds() >= 4 * 0.020);
    std::atomic<int> made = 0;
    DataLoader ahead(8,
                     [&](std::span<const std::int64_t> indices) {
                         std::this_thread::sleep_for(pause);
                         ++made;
                         return data.batch(indices);
                     },
                     {.batch_size = 2, .prefetch = 4});
    ahead.next();
    CHECK(ahead.last_wait_seconds() >= 0.020);
    while (made < 4) std::this_thread::yield();
    const double before = ahead.wait_seconds();
    for (int i = 0; i < 3; ++i) ahead.next();
    CHECK(ahead.wait_seconds() - before < 3 * 0.020);  // they were ready
}

TEST_CASE("a loader refuses what would give no batches", "[data]") {
    CHECK(contains(error_of([] { DataLoader(Numbers{0}); }), "the data set is empty"));
    CHECK(contains(error_of([] { DataLoader(Numbers{3}, {.batch_size = 4, .drop_last = true}); }), "no batch is left"));
    CHECK(contains(error_of([] { DataLoader(Numbers{3}, {.batch_size = 0}); }), "batch_size must be 1 or more"));
    const Numbers data{3};
    DataLoader loader(data);
    CHECK(contains(error_of([&] { loader.seek(-1, 0); }), "the epoch must be 0 or more"));
}
