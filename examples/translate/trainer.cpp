#include "gradus/examples/translate/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/examples/common/progress.h"
#include "gradus/examples/translate/bleu.h"
#include "gradus/nn/clip.h"

namespace gradus::examples {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Ids {
    Tensor source, input, labels;  // (B, S), (B, T), (B, T): labels are the target one place on
};

Ids tensors_of(const Batch& batch, Device device) {
    const Tensor target = Tensor::from(batch.target, {batch.rows, batch.target_length}, Device{});
    return {to(Tensor::from(batch.source, {batch.rows, batch.source_length}, Device{}), device),
            to(contiguous(slice(target, 1, 0, batch.target_length - 1)), device),
            to(contiguous(slice(target, 1, 1, batch.target_length)), device)};
}

std::int64_t real_tokens(const std::vector<std::int64_t>& ids) {
    return std::int64_t(ids.size()) - std::count(ids.begin(), ids.end(), pad_id);
}

LossSum loss_of(const Transformer& model, const Ids& ids, double smoothing) {
    const Tensor logits = model(ids.source, ids.input);
    CrossEntropyOptions options;
    options.ignore_index = pad_id, options.label_smoothing = smoothing;
    return cross_entropy_sum(reshape(logits, {-1, logits.size(-1)}), reshape(ids.labels, {-1}), options);
}

}  // namespace

std::vector<EncodedPair> encode(const std::vector<SentencePair>& pairs, const Tokenizer& source,
                                const Tokenizer& target) {
    std::vector<EncodedPair> encoded;
    for (const SentencePair& pair : pairs) encoded.push_back({source.encode(pair.source), target.encode(pair.target)});
    return encoded;
}

namespace {

/// FNV-1a over all training pairs: tells one corpus from another.
std::int64_t checksum(const std::vector<SentencePair>& pairs) {
    std::uint64_t sum = 0xcbf29ce484222325u;
    const auto add = [&](const std::string& text) {
        for (const char c : text) sum = (sum ^ std::uint8_t(c)) * 0x100000001b3u;
        sum = (sum ^ 0xffu) * 0x100000001b3u;
    };
    for (const SentencePair& pair : pairs) add(pair.source), add(pair.target);
    return std::int64_t(sum);
}

}  // namespace

double evaluate_loss(const Transformer& model, const Batches& batches) {
    const NoGrad scope;
    double sum = 0, count = 0;
    for (const auto& indices : batches.in_order()) {
        const LossSum loss = loss_of(model, tensors_of(batches.batch(indices), model.device()), 0);
        sum += loss.sum.item(), count += loss.count.item();
    }
    return sum / count;
}

/// The running figures between two lines of the log, and where they go.
class TrainLog {
  public:
    explicit TrainLog(const std::filesystem::path& path, bool fresh) : lines_(path, fresh), progress_("training") {}
    void count(const Trainer::StepResult& result, double seconds, bool timed) {
        norm_ = result.norm, lr_ = result.lr;
        if (!timed) return;  // the first step also warms the memory
        seconds_ += seconds, source_ += result.source_tokens, target_ += result.target_tokens;
    }
    double source_rate() const { return seconds_ > 0 ? double(source_) / seconds_ : 0; }
    double target_rate() const { return seconds_ > 0 ? double(target_) / seconds_ : 0; }
    double seconds() const { return seconds_; }
    std::string text(std::int64_t epoch, double loss) const {
        char line[160];
        std::snprintf(line, sizeof line, "epoch %lld  loss %.3f  ppl %.1f  lr %.2e  |g| %.2f  src %s/s  tgt %s/s",
                      static_cast<long long>(epoch + 1), loss, std::exp(std::min(loss, 20.0)), lr_, norm_,
                      format_count(source_rate()).c_str(), format_count(target_rate()).c_str());
        return line;
    }
    JsonLines& lines() { return lines_; }
    Progress& progress() { return progress_; }
    double norm() const { return norm_; }
    double lr() const { return lr_; }

  private:
    JsonLines lines_;
    Progress progress_;
    double seconds_ = 0, norm_ = 0, lr_ = 0;
    std::int64_t source_ = 0, target_ = 0;
};

Trainer::Trainer(const Settings& settings, const Corpus& corpus, const Tokenizer& source, const Tokenizer& target)
    : settings_(settings),
      corpus_(corpus),
      source_pieces_(source),
      target_pieces_(target),
      train_(encode(corpus.train, source, target), {settings.tokens_a_batch(), settings.max_length, 8192}),
      valid_(encode(corpus.valid, source, target), {std::max<std::int64_t>(settings.tokens_a_batch(), 255), 255, 8192}),
      rng_(settings.seed) {
    for (const SentencePair& pair : corpus.valid) {
        if (valid_sources_.size() == 250) break;  // enough for a curve
        valid_sources_.push_back(frame_source(source.encode(pair.source)));
    }
    model_ = std::make_unique<Transformer>(model_options(settings, source.size(), target.size()), rng_);
    model_->to(Device::parse(settings.device));
    data_ = checksum(corpus.train);
    AdamOptions adam;
    adam.lr = settings.lr;
    optimizer_ = std::make_unique<Adam>(model_->named_parameters(), adam);
    schedule_ = std::make_unique<Schedule>(*optimizer_, inverse_sqrt_factor(settings.warm_up));
    if (settings.resume) resume();
}

Trainer::StepResult Trainer::step(const Batch& batch) {
    model_->train();
    default_generator() =
        Generator::restore(settings_.seed, std::uint32_t(step_ + 1), 0);  // the draws of a step follow from its number
    const Ids ids = tensors_of(batch, model_->device());
    const LossSum loss = loss_of(*model_, ids, settings_.label_smoothing);
    optimizer_->zero_grad();
    backward(loss.sum / loss.count);
    const double norm = optimizer_->step({.clip_norm = settings_.clip, .check_finite = true}).item();
    const double lr = optimizer_->lr();
    schedule_->advance();
    ++step_;
    const double count = loss.count.item();
    return {loss.sum.item() / count, norm, lr, real_tokens(batch.source), std::int64_t(count)};
}

Checkpoint Trainer::snapshot() const {
    Checkpoint checkpoint;
    checkpoint.model = model_->state_dict();
    checkpoint.optimizer = optimizer_->state_dict();
    put_settings(checkpoint.values, settings_, model_->options());
    schedule_->save(checkpoint.values);
    checkpoint.values["step"] = step_, checkpoint.values["epoch"] = epoch_,
    checkpoint.values["next_batch"] = next_batch_;
    checkpoint.values["window_loss"] = window_loss_, checkpoint.values["window_pieces"] = window_pieces_;
    checkpoint.values["run.data"] = data_;
    checkpoint.values["best_loss"] = best_loss_;
    checkpoint.values["epochs_without_gain"] = std::int64_t(epochs_without_gain_);
    checkpoint.values["history"] = history_.text();
    return checkpoint;
}

void Trainer::save() { save_checkpoint(settings_.out, snapshot()); }

void Trainer::resume() {
    check(has_checkpoint(settings_.out), "translate: --resume found no checkpoint in ", settings_.out.string(),
          ": leave --resume out to start a run there");
    const Checkpoint checkpoint = load_latest(settings_.out, true);
    if (!checkpoint.warning.empty()) std::cerr << checkpoint.warning << "\n";
    model_options_at(checkpoint.values);
    check_same_run(checkpoint.values, settings_, model_->options());
    model_->load_state_dict(checkpoint.model);
    optimizer_->load_state_dict(checkpoint.optimizer);
    schedule_->load(checkpoint.values);
    step_ = integer_at(checkpoint.values, "step"), epoch_ = integer_at(checkpoint.values, "epoch");
    next_batch_ = integer_at(checkpoint.values, "next_batch");
    check(integer_at(checkpoint.values, "run.data") == data_,
          "translate: --resume: the corpus is not the one that the run began with: its packages have changed since");
    window_loss_ = number_at(checkpoint.values, "window_loss");
    window_pieces_ = integer_at(checkpoint.values, "window_pieces");
    best_loss_ = number_at(checkpoint.values, "best_loss");
    epochs_without_gain_ = int(integer_at(checkpoint.values, "epochs_without_gain"));
    history_ = History::parse(text_at(checkpoint.values, "history"));
}

bool Trainer::end_of_epoch(TrainLog& log) {
    model_->eval();
    const double loss = evaluate_loss(*model_, valid_);
    DecodeOptions greedy;
    greedy.beam = 1;
    std::vector<std::string> hypotheses, references;
    for (const auto& ids : translate(*model_, valid_sources_, greedy)) hypotheses.push_back(target_pieces_.decode(ids));
    for (std::size_t i = 0; i < hypotheses.size(); ++i) references.push_back(corpus_.valid[i].target);
    const double bleu = corpus_bleu(hypotheses, references).score;
    history_.valid_step.push_back(double(step_)), history_.valid_loss.push_back(loss),
        history_.valid_bleu.push_back(bleu);
    const bool better = loss < best_loss_;
    epochs_without_gain_ = better ? 0 : epochs_without_gain_ + 1;
    if (better) best_loss_ = loss;
    ++epoch_, next_batch_ = 0;
    char line[160];
    std::snprintf(
        line, sizeof line, "epoch %lld: validation loss %.3f, perplexity %.1f, BLEU %.1f (greedy, %zu sentences)%s",
        static_cast<long long>(epoch_), loss, std::exp(loss), bleu, hypotheses.size(), better ? "  best so far" : "");
    log.progress().note(line);
    log.lines().write(JsonObject()
                          .add("event", "epoch")
                          .add("epoch", epoch_)
                          .add("step", step_)
                          .add("valid_loss", loss)
                          .add("valid_bleu", bleu));
    if (better) {
        Checkpoint best = snapshot();
        best.optimizer.clear();
        save_checkpoint(best_folder(), best, 1);
    }
    save();
    write_curves(settings_.out / "curve.svg", history_,
                 "Chinese to English, " + to_string(settings_.corpus) + " corpus");
    return epochs_without_gain_ < settings_.patience_limit();
}

TrainReport Trainer::run(const std::atomic<bool>& stop) {
    TrainLog log(settings_.out / "log.jsonl", !settings_.resume);
    TrainReport report;
    const double start = now();
    bool first = true;
    const auto bound = [&]() -> const char* {
        if (stop) return "interrupt";
        if (settings_.steps > 0 && step_ >= settings_.steps) return "steps";
        if (settings_.minutes > 0 && now() - start >= settings_.minutes * 60) return "minutes";
        return nullptr;
    };
    report.stopped_by = epoch_ >= settings_.epoch_limit()                    ? "epochs"
                        : epochs_without_gain_ >= settings_.patience_limit() ? "validation loss"
                                                                             : "";
    while (report.stopped_by.empty()) {
        const auto plan = train_.epoch(settings_.seed, std::uint64_t(epoch_));
        check(!plan.empty(), "translate: no training pair is within --max-length ", settings_.max_length);
        std::int64_t total = settings_.epoch_limit() * std::int64_t(plan.size());
        if (settings_.steps > 0) total = std::min(total, settings_.steps);
        while (next_batch_ < std::int64_t(plan.size())) {
            if (const char* reason = bound()) {
                report.stopped_by = reason;
                break;
            }
            const double before = now();
            const StepResult result = step(train_.batch(plan[std::size_t(next_batch_)]));
            log.count(result, now() - before, !first);
            first = false;
            ++next_batch_;
            window_loss_ += result.loss * double(result.target_tokens), window_pieces_ += result.target_tokens;
            const double mean_loss = window_loss_ / double(window_pieces_);
            log.progress().update(step_, total, log.text(epoch_, mean_loss));
            if (step_ % 50 == 0) {
                history_.step.push_back(double(step_)), history_.loss.push_back(mean_loss);
                log.lines().write(JsonObject()
                                      .add("event", "step")
                                      .add("step", step_)
                                      .add("epoch", epoch_)
                                      .add("loss", mean_loss)
                                      .add("lr", log.lr())
                                      .add("gradient_norm", log.norm())
                                      .add("source_tokens_per_second", log.source_rate())
                                      .add("target_tokens_per_second", log.target_rate()));
                window_loss_ = 0, window_pieces_ = 0;
            }
            if (step_ % settings_.save_every == 0) save();
        }
        if (!report.stopped_by.empty()) break;
        if (!end_of_epoch(log))
            report.stopped_by = "validation loss";
        else if (epoch_ >= settings_.epoch_limit())
            report.stopped_by = "epochs";
    }
    log.progress().finish();
    // A run that was cut short before its first validation still leaves a model to translate with.
    if (best_loss_ >= 1e30) {
        Checkpoint best = snapshot();
        best.optimizer.clear();
        save_checkpoint(best_folder(), best, 1);
    }
    save();
    report.interrupted = report.stopped_by == "interrupt";
    report.seconds = now() - start;
    report.source_tokens_per_second = log.source_rate(), report.target_tokens_per_second = log.target_rate();
    report.best_loss = best_loss_;
    report.steps = step_, report.epochs = epoch_;
    return report;
}

}  // namespace gradus::examples
