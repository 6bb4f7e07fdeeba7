// The caching pool: what it counts, that it reuses, and how it runs out of memory.
#include <algorithm>
#include <set>
#include <thread>

#include "gradus/core/pool.h"
#include "gradus/core/tensor.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

constexpr std::int64_t mib = 1 << 20;

Tensor bytes(std::int64_t n) { return Tensor::empty({n}, DType::u8, Device{}); }

/// Sets the limit of the CPU's pool for a scope.
struct Limit {
    explicit Limit(std::int64_t bytes) { limit_memory(bytes); }
    ~Limit() { limit_memory(0); }
};

TEST_CASE("the pool counts what is in use, cached and allocated", "[core][pool]") {
    const PoolStatistics before = pool_statistics();
    {
        const Tensor x = bytes(4 * mib);
        const PoolStatistics now = pool_statistics();
        CHECK(now.in_use == before.in_use + 4 * mib);
        CHECK(now.allocations == before.allocations + 1);
        CHECK(now.peak >= now.in_use);
    }
    const PoolStatistics after = pool_statistics();
    CHECK(after.in_use == before.in_use);
    CHECK(after.cached >= 4 * mib);
    CHECK(after.largest_cached >= 4 * mib);
}

TEST_CASE("a freed block is handed out again without asking the system", "[core][pool]") {
    void* first = nullptr;
    { first = bytes(3 * mib + 5).address(); }
    const std::int64_t system = pool_statistics().system_allocations;
    for (int i = 0; i < 100; ++i) {
        const Tensor x = bytes(3 * mib + 5);
        CHECK(x.address() == first);
    }
    CHECK(pool_statistics().system_allocations == system);
}

TEST_CASE("blocks are aligned, and large enough for what was asked", "[core][pool]") {
    for (const std::int64_t n : {0, 1, 63, 64, 65, 1000, 4097, 100000, 1 << 20, (2 << 20) + 1}) {
        INFO(n << " bytes");
        const Tensor x = bytes(n);
        CHECK(reinterpret_cast<std::uintptr_t>(x.address()) % 64 == 0);
        const auto size = std::int64_t(Pool::class_size(std::size_t(n)));
        CHECK(size >= n);
        CHECK(size <= std::max<std::int64_t>(64, n + n / 8 + 64 + (n >= mib ? 2 * mib : 0)));
        std::fill_n(x.data<std::uint8_t>(), n, std::uint8_t(7));
    }
}

TEST_CASE("blocks in use never overlap", "[core][pool]") {
    std::vector<Tensor> alive;
    std::set<std::pair<const char*, const char*>> ranges;
    for (int i = 0; i < 300; ++i) {
        alive.push_back(bytes(1 + i * 97 % 5000));
        const char* start = static_cast<const char*>(alive.back().address());
        ranges.insert({start, start + alive.back().numel()});
        if (i % 3 == 0) {
            const char* gone = static_cast<const char*>(alive.front().address());
            ranges.erase({gone, gone + alive.front().numel()});
            alive.erase(alive.begin());
        }
    }
    const char* end = nullptr;
    for (const auto& [from, to] : ranges) {
        CHECK(from >= end);
        end = to;
    }
}

TEST_CASE("release_cached gives large blocks back and leaves what is in use", "[core][pool]") {
    const Tensor kept = bytes(2 * mib);
    std::fill_n(kept.data<std::uint8_t>(), kept.numel(), std::uint8_t(9));
    { const Tensor gone = bytes(8 * mib); }
    const PoolStatistics before = pool_statistics();
    release_cached();
    const PoolStatistics after = pool_statistics();
    CHECK(before.cached - after.cached >= 8 * mib);
    CHECK(after.in_use == before.in_use);
    const std::uint8_t* first = kept.data<std::uint8_t>();
    CHECK(std::count(first, first + kept.numel(), std::uint8_t(9)) == kept.numel());
}

TEST_CASE("out of memory names every number, and the engine goes on", "[core][pool]") {
    release_cached();
    const PoolStatistics start = pool_statistics();
    const std::int64_t limit = start.in_use + start.cached + 64 * mib;
    const Limit scope(limit);
    const Tensor used = bytes(32 * mib);
    const std::string error = error_of([] { bytes(48 * mib); });
    const PoolStatistics now = pool_statistics();
    CHECK(error == text("out of memory on cpu: requested ", 48 * mib, " bytes, in use ", now.in_use, ", cached ",
                        now.cached, ", largest cached block ", now.largest_cached, ", limit ", limit,
                        ": use a smaller batch or free tensors"));
    CHECK(bytes(16 * mib).numel() == 16 * mib);
    CHECK(pool_statistics().in_use == now.in_use);
}

TEST_CASE("cached blocks of another size are given back before memory counts as out", "[core][pool]") {
    release_cached();
    const PoolStatistics start = pool_statistics();
    const Limit scope(start.in_use + start.cached + 64 * mib);
    { const Tensor first = bytes(48 * mib); }
    CHECK(bytes(56 * mib).numel() == 56 * mib);
}

TEST_CASE("a negative limit and an absurd size are refused", "[core][pool]") {
    CHECK(error_of([] { limit_memory(-1); }) == "limit_memory: expected 0 or a number of bytes: got -1");
    CHECK(error_of([] {
              Tensor::empty({std::int64_t(1) << 40, std::int64_t(1) << 40}, DType::f32, Device{});
          }) == "empty: too many elements: (1099511627776, 1099511627776)");
    CHECK(contains(error_of([] { Tensor::empty({std::int64_t(1) << 59}, DType::f64, Device{}); }),
                   "out of memory on cpu: requested 4611686018427387904 bytes"));
}

TEST_CASE("threads allocate and free at once, each block with one owner", "[core][pool][threads]") {
    const std::int64_t before = pool_statistics().in_use;
    std::vector<std::thread> threads;
    std::atomic<int> damaged = 0;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                const Tensor x = bytes(64 + (i * 131 + t) % 3000);
                std::fill_n(x.data<std::uint8_t>(), x.numel(), std::uint8_t(t));
                for (std::int64_t k = 0; k < x.numel(); ++k) damaged += x.data<std::uint8_t>()[k] != t;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(damaged == 0);
    CHECK(pool_statistics().in_use == before);
}

}  // namespace
TEST_CASE("cached small blocks do not stand in the way of a large one", "[pool]") {
    const Device device{};
    release_cached(device);
    std::vector<Tensor> small;
    const PoolStatistics before = pool_statistics(device);
    limit_memory(before.in_use + before.cached + (std::int64_t(48) << 20), device);
    for (int i = 0; i < 60; ++i) small.push_back(Tensor::empty({1 << 17}, DType::f32, device));  // 512 KiB each
    small.clear();
    CHECK_NOTHROW(Tensor::empty({std::int64_t(5) << 20}, DType::f32, device));  // 20 MiB
    limit_memory(0, device);
}

}  // namespace gradus::tests
