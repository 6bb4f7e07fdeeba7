// Collectives among threads, on CPU devices and on emulated cards.
#include <cmath>
#include <thread>

#include "gradus/autograd/ops.h"
#include "gradus/core/storage.h"
#include "gradus/parallel/local.h"
#include "gradus/tests/cards.h"
#include "gradus/tests/tolerance.h"

namespace gradus::tests {
namespace {

using namespace gradus::parallel;
using parallel::Reduce;

/// Catch2's CHECK is not for several threads at once.
void expect(bool ok, const char* what) { check(ok, "expected ", what); }

/// body(communicator) in a thread for each rank; what each rank threw, "" for nothing.
template <class Body>
std::vector<std::string> run(int ranks, const Body& body, LocalOptions options = {}) {
    auto group = local_group(ranks, options);
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            try {
                body(*group[std::size_t(r)]);
            } catch (const std::exception& error) {
                errors[std::size_t(r)] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

void check_quiet(const std::vector<std::string>& errors) {
    for (const std::string& error : errors) CHECK(error == "");
}

/// The device of a rank: the CPU for all, or cards in turn.
Device device_of(bool cards, int rank) { return cards ? card(rank % device_count(Device::cuda)) : Device{}; }

double value(int rank, std::int64_t i) { return std::sin(double(rank) * 31.7 + double(i)); }
Tensor values(int rank, std::int64_t n, DType type, Device device) {
    std::vector<double> list;
    for (std::int64_t i = 0; i < n; ++i) list.push_back(is_floating(type) ? value(rank, i) : double(rank * 10 + i));
    return to(cast(Tensor::from(list, Device{}), type), device);
}

TEST_CASE("all_reduce: every count of ranks, size, dtype and way", "[parallel]") {
    for (const bool cards : {false, true}) {
        if (cards && !have_cards(2)) return;
        for (const int ranks : {1, 2, 3, 5, 8})
            for (const std::int64_t n : {0, 1, 3, 7, 1025}) {
                if (cards && ranks > 3) continue;
                for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i64})
                    for (const Reduce how : {Reduce::sum, Reduce::mean, Reduce::max}) {
                        if (how == Reduce::mean && type == DType::i64) continue;
                        INFO(ranks << " ranks, " << n << " of " << to_string(type) << ", " << to_string(how));
                        std::vector<std::vector<double>> got(static_cast<std::size_t>(ranks));
                        check_quiet(run(ranks, [&](Communicator& group) {
                            const Tensor x = values(group.rank(), n, type, device_of(cards, group.rank()));
                            group.all_reduce(x, how);
                            got[std::size_t(group.rank())] = x.to_vector<double>();
                        }));
                        std::vector<double> wanted;
                        for (std::int64_t i = 0; i < n; ++i) {
                            double all = how == Reduce::max ? -INFINITY : 0;
                            for (int r = 0; r < ranks; ++r) {
                                const double x = values(r, n, type, Device{}).to_vector<double>()[std::size_t(i)];
                                all = how == Reduce::max ? std::max(all, x) : all + x;
                            }
                            wanted.push_back(how == Reduce::mean ? all / ranks : all);
                        }
                        CHECK(differs(got[0], wanted, tolerance(type, ranks)) == "");
                        for (const auto& other : got) CHECK(other == got[0]);  // the same bits everywhere
                    }
            }
    }
}

TEST_CASE("broadcast, all_gather and reduce_scatter", "[parallel][threads]") {
    for (const bool cards : {false, true}) {
        if (cards && !have_cards(2)) return;
        for (const int ranks : {1, 2, 3})
            for (const std::int64_t n : {0, 1, 6}) {
                INFO(ranks << " ranks, parts of " << n << (cards ? " on cards" : ""));
                check_quiet(run(ranks, [&](Communicator& group) {
                    const Device device = device_of(cards, group.rank());
                    const int root = ranks - 1;
                    const Tensor x = values(group.rank(), n, DType::f32, device);
                    group.broadcast(x, root);
                    expect(x.to_vector<float>() == values(root, n, DType::f32, Device{}).to_vector<float>(),
                           "the root's");

                    const Tensor part = values(group.rank(), n, DType::f32, device),
                                 all = zeros({ranks, n}, DType::f32, device);
                    group.all_gather(part, all);
                    std::vector<float> wanted;
                    for (int r = 0; r < ranks; ++r)
                        for (const float v : values(r, n, DType::f32, Device{}).to_vector<float>()) wanted.push_back(v);
                    expect(all.to_vector<float>() == wanted, "all parts");

                    const Tensor whole = values(group.rank(), ranks * n, DType::f64, device),
                                 share = zeros({n}, DType::f64, device);
                    group.reduce_scatter(whole, share);
                    std::vector<double> sums;
                    for (std::int64_t i = 0; i < n; ++i) {
                        double sum = 0;
                        for (int r = 0; r < ranks; ++r) sum += value(r, group.rank() * n + i);
                        sums.push_back(sum);
                    }
                    expect(differs(share.to_vector<double>(), sums, tolerance(DType::f64, ranks)).empty(), "the sums");
                    expect(whole.to_vector<double>() ==
                               values(group.rank(), ranks * n, DType::f64, Device{}).to_vector<double>(),
                           "the whole as it was");
                }));
            }
    }
}

TEST_CASE("BB-098 a group of one leaves the elements as they are", "[parallel]") {
    const auto group = local_group(1);
    const Tensor x = values(0, 1025, DType::f32, Device{});
    const std::vector<float> before = x.to_vector<float>();
    for (const Reduce how : {Reduce::sum, Reduce::mean, Reduce::max}) group[0]->all_reduce(x, how);
    group[0]->broadcast(x), group[0]->barrier();
    CHECK(x.to_vector<float>() == before);
}

TEST_CASE("collectives follow each other, and work given before and after them, in order", "[parallel][threads]") {
    for (const bool cards : {false, true}) {
        if (cards && !have_cards(2)) return;
        check_quiet(run(2, [&](Communicator& group) {
            const Device device = device_of(cards, group.rank());
            const Tensor x = full({1000}, group.rank() + 1, DType::f32, device);
            for (int i = 0; i < 5; ++i) {
                copy_(x, mul(x, 0.5));
                group.all_reduce(x);
                copy_(x, add(x, 1.0));
            }
            double wanted = 1.5 + 1;  // half of 1 + 2, and 1; from then on both are equal
            for (int i = 1; i < 5; ++i) wanted += 1;
            expect(x.to_vector<float>() == std::vector<float>(1000, float(wanted)), "all rounds");
        }));
    }
}

TEST_CASE("BB-110 ranks that ask for different things are told, all of them", "[parallel][threads]") {
    const auto errors = run(3, [](Communicator& group) {
        group.barrier();
        group.all_reduce(zeros({group.rank() == 2 ? 4 : 5}, DType::f32, Device{}));
    });
    for (const std::string& error : errors)
        CHECK(error ==
              "collective number 1: rank 0 asks for all_reduce (sum) of (5,) f32, rank 2 for all_reduce (sum) of (4,) "
              "f32");
    const auto mixed = run(2, [](Communicator& group) {
        const Tensor x = zeros({2}, DType::f32, Device{});
        group.rank() == 0 ? group.all_reduce(x) : group.broadcast(x, 1);
    });
    for (const std::string& error : mixed)
        CHECK(
            error ==
            "collective number 0: rank 0 asks for all_reduce (sum) of (2,) f32, rank 1 for broadcast (from rank 1) of "
            "(2,) f32");
}

TEST_CASE("a rank that does not come is named after the timeout, also to those who come later", "[parallel][threads]") {
    LocalOptions options;
    options.timeout = std::chrono::milliseconds(50);
    const auto errors = run(
        3,
        [](Communicator& group) {
            if (group.rank() == 1) return;
            group.barrier();
        },
        options);
    CHECK(errors[1] == "");
    for (const int r : {0, 2}) CHECK(errors[std::size_t(r)] == "barrier number 0: waited 0.05 s for rank 1 of 3");
}

TEST_CASE("BB-106 a rank that gives up wakes the others with its reason", "[parallel][threads]") {
    const auto errors = run(3, [](Communicator& group) {
        if (group.rank() == 1) return group.abort("no more data");
        group.all_reduce(zeros({3}, DType::f32, Device{}));
    });
    for (const int r : {0, 2}) CHECK(errors[std::size_t(r)] == "rank 1 of 3 gave up: no more data");
}

TEST_CASE("BB-097 a mean of integers, and other things that cannot be right", "[parallel]") {
    const auto group = local_group(1);
    Communicator& one = *group[0];
    CHECK(contains(error_of([&] { one.all_reduce(zeros({2}, DType::i64, Device{}), Reduce::mean); }),
                   "all_reduce: a mean of i64 would be cut to an integer"));
    CHECK(contains(error_of([&] { one.all_reduce(zeros({2}, DType::boolean, Device{})); }), "does not reduce bool"));
    CHECK(contains(error_of([&] { one.all_reduce(Tensor()); }), "undefined"));
    CHECK(contains(error_of([&] {
                       one.all_reduce(transpose(zeros({2, 3}, DType::f32, Device{})));
                   }),
                   "not contiguous"));
    CHECK(contains(error_of([&] { one.broadcast(zeros({2}, DType::f32, Device{}), 1); }), "no rank 1 among 1"));
    CHECK(
        contains(error_of([&] { one.all_gather(zeros({2}, DType::f32, Device{}), zeros({3}, DType::f32, Device{})); }),
                 "needs 1 parts of (2,): got (3,)"));
    CHECK(contains(error_of([] { local_group(0); }), "at least one rank"));
}

}  // namespace
}  // namespace gradus::tests
