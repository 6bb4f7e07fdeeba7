#include "gradus/examples/translate/batches.h"

#include <algorithm>
#include <map>
#include <set>

#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

// Pair i has pieces 4 + i only, so that a row tells whose it is.
std::vector<EncodedPair> make_pairs(int64_t count) {
    std::vector<EncodedPair> pairs;
    for (int64_t i = 0; i < count; ++i) {
        const auto source = static_cast<size_t>(1 + (i * 7) % 23), target = static_cast<size_t>(1 + (i * 11) % 29);
        pairs.push_back({std::vector<int64_t>(source, 4 + i), std::vector<int64_t>(target, 4 + i)});
    }
    return pairs;
}

std::vector<int64_t> all_of(const std::vector<std::vector<int64_t>>& batches) {
    std::vector<int64_t> out;
    for (const auto& batch : batches) out.insert(out.end(), batch.begin(), batch.end());
    return out;
}

}  // namespace

TEST_CASE("an epoch holds every pair once, within the budget", "[examples][batches]") {
    for (const int64_t count : {1, 10, 1000}) {
        for (const int64_t pool : {1, 64, 100000}) {
            const Batches batches(make_pairs(count), {64, 40, pool});
            for (const uint64_t epoch : {0, 1}) {
                const auto plan = batches.epoch(5, epoch);
                auto seen = all_of(plan);
                std::sort(seen.begin(), seen.end());
                REQUIRE(static_cast<int64_t>(seen.size()) == count);
                for (int64_t i = 0; i < count; ++i) REQUIRE(seen[static_cast<size_t>(i)] == i);
                for (const auto& indices : plan) {
                    const Batch batch = batches.batch(indices);
                    REQUIRE(batch.rows * std::max(batch.source_length, batch.target_length) <= 64);
                }
            }
        }
    }
}

TEST_CASE("batches depend on seed and epoch alone", "[examples][batches]") {
    const Batches a(make_pairs(500), {256, 40, 100}), b(make_pairs(500), {256, 40, 100});
    CHECK(a.epoch(7, 3) == b.epoch(7, 3));
    std::set<std::vector<std::vector<int64_t>>> different;
    for (const uint64_t seed : {0, 1, 7}) {
        for (const uint64_t epoch : {0, 1, 2}) different.insert(a.epoch(seed, epoch));
    }
    CHECK(different.size() == 9);
    CHECK(a.in_order() == b.in_order());
    // Not only the order of the batches changes between epochs, but also who shares one.
    auto first = a.epoch(7, 0), second = a.epoch(7, 1);
    for (auto* plan : {&first, &second}) {
        for (auto& batch : *plan) std::sort(batch.begin(), batch.end());
        std::sort(plan->begin(), plan->end());
    }
    CHECK(first != second);
}

TEST_CASE("pairs of one batch are of similar length", "[examples][batches]") {
    const Batches batches(make_pairs(2000), {512, 40, 100000});
    int64_t cells = 0, filled = 0;
    for (const auto& indices : batches.epoch(1, 0)) {
        const Batch batch = batches.batch(indices);
        for (int64_t row = 0; row < batch.rows; ++row) {
            const auto at = batch.target.begin() + row * batch.target_length;
            const auto length = batch.target_length - std::count(at, at + batch.target_length, 0);
            filled += std::max<int64_t>(length, 0);
        }
        cells += batch.rows * batch.target_length;
    }
    // In random order the longest of some 20 pairs pads the batch to about half.
    CHECK(static_cast<double>(filled) / static_cast<double>(cells) > 0.75);
    const auto plan = batches.in_order();
    for (size_t i = 1; i < plan.size(); ++i) {
        const Batch a = batches.batch(plan[i - 1]), b = batches.batch(plan[i]);
        CHECK(std::max(a.source_length, a.target_length) <= std::max(b.source_length, b.target_length));
    }
}

TEST_CASE("a batch frames and pads its rows", "[examples][batches]") {
    const Batches batches({{{5, 6}, {7}}, {{8}, {9, 10, 11}}}, {100, 10, 10});
    const Batch batch = batches.batch({1, 0});
    CHECK(batch.rows == 2);
    CHECK(batch.source_length == 3);
    CHECK(batch.target_length == 5);
    CHECK(batch.source == std::vector<int64_t>{8, 3, 0, 5, 6, 3});
    CHECK(batch.target == std::vector<int64_t>{2, 9, 10, 11, 3, 2, 7, 3, 0, 0});
    CHECK(batch.indices == std::vector<int64_t>{1, 0});
    CHECK(frame_source({}) == std::vector<int64_t>{3});
    CHECK(frame_target({4}) == std::vector<int64_t>{2, 4, 3});
    CHECK(contains(error_of([&] { batches.batch({2}); }), "pair 2 lies outside [0, 2)"));
    CHECK(contains(error_of([&] { batches.batch({}); }), "no pairs"));
}

TEST_CASE("pairs beyond the longest length are left out and counted", "[examples][batches]") {
    // With marks: source 1 + pieces, target 2 + pieces; 5 is the limit.
    const std::vector<int64_t> three(3, 4), four(4, 4), five(5, 4);
    const Batches batches({{four, three}, {five, three}, {three, four}, {{}, {}}}, {5, 5, 10});
    CHECK(batches.size() == 2);
    CHECK(batches.left_out() == 2);
    auto kept = all_of(batches.epoch(1, 1));
    std::sort(kept.begin(), kept.end());
    CHECK(kept == std::vector<int64_t>{0, 3});
    CHECK(Batches({}, {}).epoch(1, 1).empty());
    CHECK(contains(error_of([] { Batches({}, {4, 5, 10}); }), "a budget of 4 tokens"));
    CHECK(contains(error_of([] { Batches({}, {4, 0, 10}); }), "must be positive"));
}

TEST_CASE("the shuffle is a fair permutation and the same everywhere", "[examples][batches]") {
    // SplitMix64's first outputs for the seed 0 are published: e220a8397b1dcdaf, 6e789e6aa1b965f4. Of three values the
    // first swaps 2 with e220a8397b1dcdaf mod 3 = 1, the second swaps 1 with 6e789e6aa1b965f4 mod 2 = 0.
    std::vector<int64_t> three{10, 11, 12};
    shuffle(three, 0);
    CHECK(0xe220a8397b1dcdafu % 3 == 1);
    CHECK(three == std::vector<int64_t>{12, 10, 11});
    std::map<std::vector<int64_t>, int> counts;
    for (uint64_t seed = 0; seed < 6000; ++seed) {
        std::vector<int64_t> values{0, 1, 2};
        shuffle(values, seed);
        ++counts[values];
    }
    CHECK(counts.size() == 6);
    // 1000 expected of each, standard deviation 29.
    for (const auto& [order, count] : counts) CHECK(std::abs(count - 1000) < 150);
}
