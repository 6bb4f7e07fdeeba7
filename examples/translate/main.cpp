// Trains a Transformer to translate Chinese into English, measures it, and translates with it.
#include <unistd.h>
#include <cstdio>
#include <iostream>

#include <CLI/CLI.hpp>

#include "gradus/autograd/node.h"
#include "gradus/examples/common/fetch.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/common/progress.h"
#include "gradus/examples/common/session.h"
#include "gradus/examples/translate/bleu.h"
#include "gradus/examples/translate/trainer.h"
#include "gradus/kernels/parallel.h"

namespace {

using namespace gradus;
using namespace gradus::examples;
namespace fs = std::filesystem;

struct Task {
    Settings settings;
    std::vector<std::string> texts;
    bool interactive = false, evaluate = false;
    std::string corpus = "small";
};

void add_options(CLI::App& app, Task& task) {
    Settings& s = task.settings;
    app.add_option("--corpus", task.corpus,
                   "small: 33,000 pairs, about ten minutes; full: 88,000 pairs, trained until the validation loss "
                   "stops falling")
        ->check(CLI::IsMember({"small", "full"}))
        ->capture_default_str();
    app.add_option("--out", s.out, "folder of the run [runs/translate-<corpus>]");
    app.add_option("--text", task.texts, "translate this text with the trained model (may be repeated); no training");
    app.add_flag("--interactive", task.interactive, "translate line by line from standard input; no training");
    app.add_flag("--evaluate", task.evaluate, "measure the trained model on the test set; no training");
    app.add_flag("--resume", s.resume, "continue the run in --out, bit for bit");
    app.add_option("--epochs", s.epochs, "passes over the corpus [6 for small, at most 60 for full]");
    app.add_option("--steps", s.steps, "stop after this many steps in all [no bound]");
    app.add_option("--minutes", s.minutes, "stop after this much time [no bound]");
    app.add_option("--patience", s.patience, "stop after this many epochs without a better validation loss [full: 3]");
    app.add_option("--seed", s.seed, "decides every random number: the same seed gives the same bits")
        ->check(check_seed)
        ->capture_default_str();
    app.add_option("--device", s.device, "where to train, of " + device_choice())->capture_default_str();
    app.add_option("--lr", s.lr, "learning rate at its peak")->capture_default_str();
    app.add_option("--warm-up", s.warm_up, "steps until the peak; then the rate falls with 1/sqrt(step)")
        ->capture_default_str();
    app.add_option("--clip", s.clip, "limit of the gradient's norm")->capture_default_str();
    app.add_option("--label-smoothing", s.label_smoothing, "share of the target spread over all pieces")
        ->capture_default_str();
    app.add_option("--dropout", s.dropout, "share of units dropped in training")->capture_default_str();
    app.add_option("--batch-tokens", s.batch_tokens,
                   "size of a batch: sentences times the longest of them [1024 for small, 2048 for full]");
    app.add_option("--max-length", s.max_length, "longest sentence trained on, in pieces")->capture_default_str();
    app.add_option("--layers", s.layers, "layers of the encoder and of the decoder")->capture_default_str();
    app.add_option("--d-model", s.d_model, "width of the model")->capture_default_str();
    app.add_option("--heads", s.heads, "attention heads")->capture_default_str();
    app.add_option("--hidden", s.hidden, "width inside the feed-forward layers")->capture_default_str();
    app.add_option("--vocabulary", s.vocabulary, "pieces of each language")->capture_default_str();
    app.add_option("--beam", s.beam, "hypotheses kept while translating; 1 is greedy")->capture_default_str();
    app.add_option("--test-sentences", s.test_sentences, "how many test sentences to measure on [all]");
    app.add_option("--save-every", s.save_every, "steps between checkpoints")->capture_default_str();
}

struct Pieces {
    Tokenizer source, target;
};

Pieces trained_pieces(const Settings& s, const Corpus& corpus) {
    const fs::path source = s.out / "source.model", target = s.out / "target.model";
    if (!fs::exists(source) || !fs::exists(target)) {
        check(!s.resume, "translate: ", s.out.string(), " holds no vocabularies to resume with: leave --resume out");
        std::cerr << "learning " << s.vocabulary << " pieces of each language\n";
        std::vector<std::string> zh, en;
        for (const SentencePair& pair : corpus.train) zh.push_back(pair.source), en.push_back(pair.target);
        Tokenizer::train(zh, source, s.vocabulary);
        Tokenizer::train(en, target, s.vocabulary);
    }
    return {Tokenizer(source), Tokenizer(target)};
}

/// The best model of a run, and its vocabularies.
class Translator {
  public:
    explicit Translator(const Settings& s) : settings_(s), pieces_(load_pieces(s)) {
        const Checkpoint best = load_latest(s.out / "best");
        const TransformerOptions options = model_options_at(best.values);
        corpus_ = text_at(best.values, "run.corpus");
        check(options.source_vocabulary == pieces_.source.size() && options.target_vocabulary == pieces_.target.size(),
              "translate: the vocabularies in ", s.out.string(),
              " are not those of its model: the folder mixes two runs");
        Generator unused;
        model_ = std::make_unique<Transformer>(options, unused);
        model_->load_state_dict(best.model);
        model_->to(Device::parse(s.device));
        model_->eval();
    }

    std::vector<std::string> translate(const std::vector<std::string>& texts,
                                       const std::function<bool(std::int64_t)>& done = {}) const {
        std::vector<std::vector<std::int64_t>> sources;
        for (const std::string& text : texts) sources.push_back(framed(text));
        DecodeOptions options;
        options.beam = settings_.beam;
        std::vector<std::string> out;
        for (const auto& ids : examples::translate(*model_, sources, options, done))
            out.push_back(pieces_.target.decode(ids));
        return out;
    }
    std::vector<std::int64_t> framed(const std::string& text) const {
        std::vector<std::int64_t> ids = frame_source(pieces_.source.encode(text));
        check(std::int64_t(ids.size()) <= model_->options().longest, "translate: the text is ", ids.size(),
              " pieces long, the model reads at most ", model_->options().longest, ": split it into sentences");
        return ids;
    }
    const Transformer& model() const { return *model_; }
    const Pieces& pieces() const { return pieces_; }
    const std::string& corpus() const { return corpus_; }

  private:
    static Pieces load_pieces(const Settings& s) {
        check(fs::exists(s.out / "source.model") && has_checkpoint(s.out / "best"), "translate: no trained model in ",
              s.out.string(), ": train one first, or say where it is with --out");
        return {Tokenizer(s.out / "source.model"), Tokenizer(s.out / "target.model")};
    }
    Settings settings_;
    Pieces pieces_;
    std::string corpus_;
    std::unique_ptr<Transformer> model_;
};

void evaluate(const Settings& s, const Corpus& corpus) {
    const Translator translator(s);
    check(translator.corpus() == to_string(s.corpus), "translate: the model in ", s.out.string(),
          " was trained on the ", translator.corpus(), " corpus: measure it with --corpus ", translator.corpus(),
          ", whose test set it has not seen");
    std::vector<SentencePair> test = corpus.test;
    if (s.test_sentences > 0 && std::size_t(s.test_sentences) < test.size()) test.resize(std::size_t(s.test_sentences));
    std::vector<std::string> sources, references;
    for (const SentencePair& pair : test) sources.push_back(pair.source), references.push_back(pair.target);
    std::vector<std::string> translations;
    {
        Progress progress("translating the test set");
        translations = translator.translate(sources, [&](std::int64_t done) {
            progress.update(done, std::int64_t(sources.size()), "beam " + std::to_string(s.beam));
            return !stop_requested();
        });
        progress.finish();
    }
    if (stop_requested()) return void(std::cerr << "interrupted: the test set was not finished, so there is no BLEU\n");
    const BleuScore bleu = corpus_bleu(translations, references);
    const std::string shown = samples(test, translations, 10);
    std::cout << "\n" << shown << "\n" << to_string(bleu) << "\n" << bleu.signature << "\n";
    if (test.size() == corpus.test.size())
        std::cout << "nearest-neighbour retrieval, which understands nothing, reaches "
                  << (s.corpus == CorpusKind::small ? "11.9" : "9.8") << " on the test set of Debian 12's packages\n";
    std::string all;
    for (const std::string& line : translations) all += line + "\n";
    write_file(s.out / "test.hypotheses.txt", all);
    write_file(s.out / "samples.txt", shown);
    JsonLines(s.out / "log.jsonl")
        .write(JsonObject().add("event", "test").add("bleu", bleu.score).add("signature", bleu.signature));
    for (std::size_t i = 0; i < test.size(); ++i) {
        const auto source = translator.framed(sources[i]);
        const auto target = translator.pieces().target.encode(translations[i]);
        if (source.size() < 8 || source.size() > 20 || target.size() < 6 || target.size() > 24) continue;
        write_attention(s.out / "attention.svg", translator.model(), translator.pieces().source,
                        translator.pieces().target, source, target);
        break;
    }
    std::cout << "in " << s.out.string() << ":";
    for (const char* file : {"samples.txt", "test.hypotheses.txt", "attention.svg", "curve.svg", "log.jsonl"})
        if (fs::exists(s.out / file)) std::cout << " " << file;
    std::cout << "\n";
}

void translate_lines(const Settings& s) {
    const Translator translator(s);
    const bool terminal = isatty(STDIN_FILENO);
    if (terminal) std::cerr << "Chinese in, English out; an empty line or ctrl-D ends\n";
    for (std::string line; terminal && (std::cerr << "> "), std::getline(std::cin, line);) {
        if (line.empty()) {
            if (terminal) break;
            std::cout << "\n";
            continue;
        }
        try {
            std::cout << translator.translate({line})[0] << std::endl;
        } catch (const Error& error) {
            std::cerr << error.what() << "\n";
        }
    }
}

int train(Settings s) {
    const Message say = [](const std::string& line) { std::cerr << line << "\n"; };
    const Corpus corpus =
        load_corpus(s.corpus, cache_folder(), fs::path(GRADUS_SOURCE_DIR) / "examples/translate/extract_pairs.py", say);
    std::cerr << to_string(s.corpus) << " corpus: " << corpus.train.size() << " pairs to learn from, "
              << corpus.valid.size() << " to validate, " << corpus.test.size() << " to test\n";
    if (!s.resume) make_room("translate", s.out);
    make_folder(s.out);
    const Pieces pieces = trained_pieces(s, corpus);
    Trainer trainer(s, corpus, pieces.source, pieces.target);
    std::cerr << "Transformer of " << trainer.model().parameter_count() << " parameters on " << s.device << ", "
              << thread_count() << " threads; run folder " << s.out.string()
              << (trainer.steps() ? text("; continues at step ", trainer.steps()) : std::string()) << "\n";
    if (trainer.left_out() > 0)
        std::cerr << trainer.left_out() << " pairs longer than " << s.max_length << " pieces are left out\n";
    const TrainReport report = trainer.run(stop_requested());
    std::fprintf(stderr, "trained %lld steps (%lld epochs) in %s, %.0f source and %.0f target tokens/s; ended by: %s\n",
                 static_cast<long long>(report.steps), static_cast<long long>(report.epochs),
                 format_duration(report.seconds).c_str(), report.source_tokens_per_second,
                 report.target_tokens_per_second, report.stopped_by.c_str());
    if (report.interrupted) {
        std::cerr << "saved; ./run translate --resume with the same options continues bit for bit\n";
        return interrupted;
    }
    evaluate(s, corpus);
    return stop_requested() ? interrupted : 0;
}

int run(int argc, char** argv) {
    Task task;
    CLI::App app(
        "Trains a Transformer to translate Chinese into English on text from Debian packages, shows its BLEU and "
        "samples, and "
        "translates with it. Without options: the small corpus, about ten minutes on two cores.",
        "translate");
    add_options(app, task);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        std::cerr << "translate: " << error.what() << " (--help lists the options)\n";
        return 2;
    }
    Settings& s = task.settings;
    s.corpus = task.corpus == "full" ? CorpusKind::full : CorpusKind::small;
    if (s.out.empty()) s.out = fs::path("runs") / ("translate-" + task.corpus);
    try {
        check_settings(s);
        check_training_device("translate", s.device);
    } catch (const Error& error) {
        std::cerr << error.what() << "\n";
        return 2;
    }
    if (!task.texts.empty()) {
        for (const std::string& line : Translator(s).translate(task.texts)) std::cout << line << "\n";
        return 0;
    }
    if (task.interactive) return translate_lines(s), 0;
    stop_on_interrupt();
    if (task.evaluate) {
        evaluate(s, load_corpus(s.corpus, cache_folder(),
                                fs::path(GRADUS_SOURCE_DIR) / "examples/translate/extract_pairs.py", {}));
        return stop_requested() ? interrupted : 0;
    }
    return train(s);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
