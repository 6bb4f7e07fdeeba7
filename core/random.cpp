#include "gradus/core/random.h"

#include "gradus/core/thread_state.h"

namespace gradus {

Draw Generator::next() {
    Draw draw{seed_, step_, number_++, 0, 0};
    if (const RandomScope& scope = thread_state().random_scope; scope.open)
        draw.first_sample = scope.first_sample, draw.samples = scope.samples;
    return draw;
}

Generator Generator::restore(std::uint64_t seed, std::uint32_t step, std::uint32_t number) {
    Generator generator(seed);
    generator.step_ = step, generator.number_ = number;
    return generator;
}

Generator& default_generator() {
    static thread_local Generator generator;
    return generator;
}

void manual_seed(std::uint64_t seed) { default_generator() = Generator(seed); }

}  // namespace gradus
