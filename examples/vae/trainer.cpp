#include "gradus/examples/vae/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/examples/common/jsonl.h"

namespace gradus::examples {

namespace {

constexpr std::int64_t steps_a_point = 100;
/// The step whose draws the test uses; training never reaches it.
constexpr std::uint32_t test_step = 0xfffffffe;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string shown(const Terms& terms) {
    char line[96];
    std::snprintf(line, sizeof line, "-ELBO %.2f = reconstruction %.2f + KL %.2f", terms.total(), terms.reconstruction,
                  terms.kl);
    return line;
}

/// Short, so that a progress line fits a terminal of 80 columns or little more.
std::string brief(const Terms& terms) {
    char line[64];
    std::snprintf(line, sizeof line, "rec %.1f + KL %.1f", terms.reconstruction, terms.kl);
    return line;
}

LoaderOptions loader_options(const VaeSettings& settings) {
    LoaderOptions options;
    options.batch_size = settings.batch, options.seed = settings.seed;
    return options;
}

JsonObject record(const char* event, std::int64_t step, std::int64_t epoch) {
    return JsonObject().add("event", event).add("step", step).add("epoch", epoch);
}

void add(JsonObject& object, const std::string& name, const Terms& terms) {
    object.add(name + "_reconstruction", terms.reconstruction).add(name + "_kl", terms.kl);
}

/// The newest checkpoint; a damaged one is an error that says how to continue from the one before.
Checkpoint newest_checkpoint(const std::filesystem::path& folder) {
    try {
        return load_latest(folder);
    } catch (const Error& damage) {
        const std::string intact = load_latest(folder, true).name;  // throws as well when there is none
        fail("vae: the newest checkpoint is damaged; to continue from ", intact, " delete its folder and ",
             (folder / "latest").string(), ": ", damage.what());
    }
}

}  // namespace

void VaeTrainer::Average::add(const Terms& terms, std::int64_t count) {
    sum.reconstruction += terms.reconstruction * double(count), sum.kl += terms.kl * double(count);
    images += count;
}

void VaeTrainer::Average::save(Values& values, const std::string& name) const {
    values[name + ".reconstruction"] = sum.reconstruction, values[name + ".kl"] = sum.kl;
    values[name + ".images"] = images;
}

VaeTrainer::Average VaeTrainer::Average::load(const Values& values, const std::string& name) {
    return {{number_at(values, name + ".reconstruction"), number_at(values, name + ".kl")},
            integer_at(values, name + ".images")};
}

VaeTrainer::VaeTrainer(const VaeSettings& settings, const Fashion& data)
    : settings_(settings),
      data_(data),
      device_(Device::parse(settings.device)),
      rng_(settings.seed),
      model_(data.train.pixel_count(), settings.hidden, settings.latent, rng_),
      optimizer_(model_.named_parameters(), {.lr = settings.lr}),
      loader_(data.train, loader_options(settings)) {
    model_.to(device_);
    if (settings.resume) resume();
}

Terms VaeTrainer::step(const Tensor& images) {
    Generator noise =
        Generator::restore(settings_.seed, std::uint32_t(step_ + 1), 0);  // follows from the step's number
    const ElboTerms terms = elbo_terms(model_(images, noise), images);
    const double count = double(images.size(0));
    const Terms mean{terms.reconstruction.item() / count, terms.kl.item() / count};
    check(std::isfinite(mean.total()), "vae: the loss of step ", step_ + 1,
          " is not finite: lower --lr, or run with GRADUS_ANOMALY=1 to see where it begins");
    optimizer_.zero_grad();
    backward((terms.reconstruction + terms.kl) / count);
    optimizer_.step({.check_finite = true});
    ++step_;
    return mean;
}

Terms VaeTrainer::test() const {
    const NoGrad scope;
    LoaderOptions options;
    options.batch_size = 500, options.shuffle = false;
    DataLoader loader(data_.test, options);
    Generator noise = Generator::restore(settings_.seed, test_step, 0);
    Average average;
    while (const auto batch = loader.next()) {
        const Tensor images = batch->to(device_)["images"];
        const ElboTerms terms = elbo_terms(model_(images, noise), images);
        average.sum.reconstruction += terms.reconstruction.item(), average.sum.kl += terms.kl.item();
        average.images += images.size(0);
    }
    return average.mean();
}

void VaeTrainer::save() const {
    Checkpoint checkpoint{model_.state_dict(), optimizer_.state_dict(), {}, {}, {}};
    Values& values = checkpoint.values;
    put_settings(values, settings_);
    loader_.save(values);
    window_.save(values, "window"), epoch_.save(values, "epoch");
    values["step"] = step_;
    values["history"] = history_.text();
    save_checkpoint(settings_.out, checkpoint);
}

void VaeTrainer::resume() {
    check(has_checkpoint(settings_.out), "vae: --resume found no checkpoint in ", settings_.out.string(),
          ": leave --resume out to start a run there");
    const Checkpoint checkpoint = newest_checkpoint(settings_.out);
    const Values& values = checkpoint.values;
    check_same_run(values, settings_);
    model_.load_state_dict(checkpoint.model);
    optimizer_.load_state_dict(checkpoint.optimizer);
    loader_.load(values);
    window_ = Average::load(values, "window"), epoch_ = Average::load(values, "epoch");
    step_ = integer_at(values, "step");
    history_ = VaeHistory::parse(text_at(values, "history"));
}

void VaeTrainer::write_pictures() const {
    write_reconstructions(settings_.out / "reconstructions.png", model_, data_.test);
    write_samples(settings_.out / "samples.png", model_, data_.test, settings_.seed);
    write_walk(settings_.out / "walk.png", model_, data_.test);
    write_curves(settings_.out / "curve.svg", history_);
}

VaeRun VaeTrainer::run(const std::atomic<bool>& stop, Progress& progress) {
    JsonLines log(settings_.out / "log.jsonl", !settings_.resume);
    VaeRun report;
    std::int64_t last = settings_.epochs * loader_.batches();
    if (settings_.steps > 0) last = std::min(last, settings_.steps);

    const auto stopped_by = [&] {
        if (loader_.epoch() >= settings_.epochs) return "epochs";
        if (stop) return "interrupt";
        return settings_.steps > 0 && step_ >= settings_.steps ? "steps" : "";
    };
    const auto end_of_epoch = [&] {
        report.test = test();
        history_.test.push_back({step_, report.test});
        progress.note(
            text("epoch ", loader_.epoch(), ": test ", shown(report.test), "; training ", shown(epoch_.mean())));
        JsonObject line = record("epoch", step_, loader_.epoch());
        add(line, "train", epoch_.mean()), add(line, "test", report.test);
        log.write(line);
        epoch_ = {};
        write_pictures();
        save();
    };

    while ((report.stopped_by = stopped_by()).empty()) {
        const double start = now();
        const auto batch = loader_.next();
        report.wait_seconds += loader_.last_wait_seconds();
        if (!batch) {
            end_of_epoch();
            continue;
        }
        const Tensor images = batch->to(device_)["images"];
        const Terms terms = step(images);
        report.seconds += now() - start, report.images += images.size(0);
        window_.add(terms, images.size(0)), epoch_.add(terms, images.size(0));
        progress.update(step_, last,
                        text("epoch ", loader_.epoch() + 1, "  ", brief(window_.mean()), "  ",
                             format_count(report.images_per_second()), " img/s"));
        if (step_ % steps_a_point != 0) continue;
        history_.train.push_back({step_, window_.mean()});
        JsonObject line = record("step", step_, loader_.epoch());
        add(line, "train", window_.mean());
        log.write(line.add("images_per_second", report.images_per_second()));
        window_ = {};
    }
    progress.finish();
    save();
    if (report.stopped_by == "interrupt") return report;
    // A run cut short by --steps has no test of its last state yet; the curve keeps to whole epochs.
    if (history_.test.empty() || history_.test.back().step != step_) {
        report.test = test();
        write_pictures();
    } else {
        report.test = history_.test.back().terms;
    }
    JsonObject line = record("end", step_, loader_.epoch());
    add(line, "test", report.test);
    log.write(line.add("images_per_second", report.images_per_second()).add("data_wait_seconds", report.wait_seconds));
    return report;
}

}  // namespace gradus::examples
