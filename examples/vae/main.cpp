// Trains a variational autoencoder on pictures of clothes and shows what it makes of them.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

#include "gradus/core/error.h"
#include "gradus/examples/common/fetch.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/progress.h"
#include "gradus/examples/common/session.h"
#include "gradus/examples/vae/trainer.h"
#include "gradus/kernels/parallel.h"

namespace {

using namespace gradus;
using namespace gradus::examples;
namespace fs = std::filesystem;

constexpr int run_error = 1, usage_error = 2;

void add_options(CLI::App& app, VaeSettings& s) {
    app.add_option("--out", s.out, "folder of the run")->capture_default_str();
    app.add_option("--data", s.data, "folder with Fashion-MNIST's four .gz files [Debian's package, fetched once]");
    app.add_flag("--resume", s.resume, "continue the run in --out, bit for bit");
    app.add_option("--epochs", s.epochs, "passes over the 60,000 pictures")->capture_default_str();
    app.add_option("--steps", s.steps, "stop after this many steps in all [no bound]");
    app.add_option("--batch", s.batch, "pictures a step")->capture_default_str();
    app.add_option("--latent", s.latent, "coordinates of a picture's code")->capture_default_str();
    app.add_option("--hidden", s.hidden, "width of the hidden layers")->capture_default_str();
    app.add_option("--lr", s.lr, "learning rate of Adam")->capture_default_str();
    app.add_option("--seed", s.seed, "decides every random number: the same seed gives the same bits")
        ->check(check_seed)
        ->capture_default_str();
    app.add_option("--device", s.device, "where to train, of " + device_choice())->capture_default_str();
}

void report(const VaeSettings& s, const VaeTrainer& trainer, const VaeRun& run) {
    std::fprintf(
        stderr, "trained %s images in %s, %.0f images/s, %s of it waiting for data; stopped at step %lld by: %s\n",
        format_count(double(run.images)).c_str(), format_duration(run.seconds).c_str(), run.images_per_second(),
        format_duration(run.wait_seconds).c_str(), static_cast<long long>(trainer.steps()), run.stopped_by.c_str());
    if (run.stopped_by == "interrupt") {
        std::cerr << "saved in " << s.out.string() << "; --resume with the same options continues bit for bit\n";
        return;
    }
    std::printf("test ELBO %.2f nats an image: reconstruction %.2f, KL %.2f\n", -run.test.total(),
                run.test.reconstruction, run.test.kl);
    std::printf("written: %s/{reconstructions.png, samples.png, walk.png, curve.svg, log.jsonl}\n",
                s.out.string().c_str());
}

/// What may fail by the user's doing: options, data, checkpoint. Null: only help was asked for.
struct Task {
    VaeSettings settings;
    Fashion data;
    std::unique_ptr<VaeTrainer> trainer;
};

std::unique_ptr<Task> prepare(int argc, char** argv) {
    auto task = std::make_unique<Task>();
    VaeSettings& s = task->settings;
    CLI::App app(
        "Trains a variational autoencoder on Fashion-MNIST, 70,000 pictures of clothes, and writes pictures it made: "
        "reconstructions, samples, and a walk between four codes. Without options about a minute on two cores.",
        "vae");
    add_options(app, s);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
        app.exit(help);
        return nullptr;
    } catch (const CLI::ParseError& error) {
        fail("vae: ", error.what(), " (--help lists the options)");
    }
    check_settings(s);
    check_training_device("vae", s.device);
    const Message say = [](const std::string& line) { std::cerr << line << "\n"; };
    task->data = s.data.empty() ? load_fashion(cache_folder(), say) : read_fashion(s.data);
    if (!s.resume) make_room("vae", s.out);
    make_folder(s.out);
    task->trainer = std::make_unique<VaeTrainer>(s, task->data);
    std::cerr << text("autoencoder of ", task->trainer->model().parameter_count(), " parameters on ", s.device, ", ",
                      thread_count(), " threads; ", task->data.train.size(), " pictures to learn from, ",
                      task->data.test.size(), " to test; run folder ", s.out.string());
    if (s.resume) std::cerr << "; continues at step " << task->trainer->steps();
    std::cerr << "\n";
    return task;
}

int fail_with(int status, const std::exception& error) {
    std::cerr << error.what() << "\n";
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    stop_on_interrupt();
    std::unique_ptr<Task> task;
    try {
        task = prepare(argc, argv);
    } catch (const std::exception& error) {
        return fail_with(usage_error, error);
    }
    if (!task) return 0;
    try {
        Progress progress("vae");
        const VaeRun run = task->trainer->run(stop_requested(), progress);
        report(task->settings, *task->trainer, run);
        return run.stopped_by == "interrupt" ? interrupted : 0;
    } catch (const std::exception& error) {
        return fail_with(run_error, error);
    }
}
