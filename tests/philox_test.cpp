// Philox4x32-10 against the vectors its authors publish, and the generator's bookkeeping.
#include "gradus/core/random.h"
#include "gradus/core/thread_state.h"
#include "gradus/tests/support.h"

namespace gradus::tests {
namespace {

TEST_CASE("Philox4x32-10 gives the known answers", "[core][random]") {
    CHECK(philox({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    const std::uint32_t all = 0xffffffff;
    CHECK(philox({all, all, all, all}, {all, all}) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a generator hands out draws in order and continues from its saved state", "[core][random]") {
    Generator generator(42);
    generator.begin_step(7);
    const Draw first = generator.next(), second = generator.next();
    CHECK(first.seed == 42);
    CHECK(first.step == 7);
    CHECK(first.number == 0);
    CHECK(second.number == 1);
    CHECK(first.block(0, 0) == philox({0, 0, 0, 7}, {42, 0}));
    CHECK(second.block(5, 3) == philox({5, 3, 1, 7}, {42, 0}));

    Generator copy = Generator::restore(generator.seed(), generator.step(), generator.number());
    CHECK(copy == generator);
    CHECK(copy.next().number == 2);
    CHECK_FALSE(copy == generator);
    generator.begin_step(8);
    CHECK(generator.next().number == 0);
}

TEST_CASE("both halves of a 64-bit seed count", "[core][random]") {
    const std::uint64_t high = std::uint64_t(1) << 32;
    CHECK(Generator(high).next().block(0, 0) == philox({0, 0, 0, 0}, {0, 1}));
    CHECK(Generator(0).next().block(0, 0) != Generator(high).next().block(0, 0));
}

TEST_CASE("block numbers above 32 bits do not repeat the first ones", "[core][random]") {
    const Draw draw = Generator(1).next();
    CHECK(draw.block(0, 0) != draw.block(std::uint64_t(1) << 32, 0));
}

TEST_CASE("an open random scope numbers the samples", "[core][random]") {
    ThreadState state = thread_state();
    state.random_scope = {true, 12, 4};
    Generator generator(3);
    {
        const ThreadStateGuard guard(state);
        const Draw draw = generator.next();
        CHECK(draw.first_sample == 12);
        CHECK(draw.samples == 4);
    }
    const Draw outside = generator.next();
    CHECK(outside.first_sample == 0);
    CHECK(outside.samples == 0);
}

TEST_CASE("a random word becomes a number strictly between 0 and 1", "[core][random]") {
    CHECK(to_unit(0) == 0x1p-24f);
    CHECK(to_unit(0xffffffff) == 1 - 0x1p-24f);
    CHECK(to_unit_f64(0, 0) == 0x1p-53);
    CHECK(to_unit_f64(0xffffffff, 0xffffffff) == 1 - 0x1p-53);
    CHECK(to_unit(0x80000000) > 0.5f);
    CHECK(to_unit(0x7fffffff) < 0.5f);
}

}  // namespace
}  // namespace gradus::tests
