// Fits a small network to y = sin(x) and prints how its error falls.
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;

int main() {
    const Device cpu;
    Generator rng(1);  // every random number below follows from this seed

    const Tensor x = uniform({256, 1}, -3, 3, DType::f32, cpu, &rng);
    const Tensor y = sin(x);

    Sequential model(Linear(1, 32, rng), Function(tanh), Linear(32, 1, rng));
    Adam adam(model.named_parameters(), {.lr = 0.01});

    for (int step = 0; step <= 1000; ++step) {
        const Tensor loss = mse_loss(model(x), y);
        if (step % 100 == 0) std::printf("step %4d  loss %.6f\n", step, loss.item());
        adam.zero_grad();
        backward(loss);
        adam.step();
    }
}
