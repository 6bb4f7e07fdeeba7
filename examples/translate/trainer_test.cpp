#include <cmath>

#include "gradus/autograd/node.h"
#include "gradus/autograd/ops.h"
#include "gradus/examples/common/files.h"
#include "gradus/examples/translate/trainer.h"
#include "gradus/tests/support.h"

namespace gradus::examples {
namespace {

using gradus::tests::contains;
using gradus::tests::error_of;

/// A corpus of our own making: numbers spelled out, forwards as source and backwards as target.
Corpus toy_corpus() {
    const std::vector<std::string> digits = {"zero", "one", "two",   "three", "four",
                                             "five", "six", "seven", "eight", "nine"};
    Corpus corpus;
    for (int i = 0; i < 400; ++i) {
        SentencePair pair;
        for (int n = i * 7 + 13, left = 2 + i % 5; left > 0; --left, n = n / 3 + 5 * i + left) {
            const std::string& word = digits[std::size_t(n % 10)];
            pair.source += (pair.source.empty() ? "" : " ") + word;
            pair.target = word + (pair.target.empty() ? "" : " ") + pair.target;
        }
        (i % 20 == 0 ? corpus.valid : i % 20 == 1 ? corpus.test : corpus.train).push_back(pair);
    }
    return corpus;
}

struct Toy {
    Toy() {
        std::vector<std::string> texts;
        for (const SentencePair& pair : corpus.train) texts.push_back(pair.source);
        Tokenizer::train(texts, folder.path() / "pieces.model", 320);
        pieces.emplace(folder.path() / "pieces.model");
        settings.layers = 1, settings.d_model = 16, settings.heads = 2, settings.hidden = 32;
        settings.batch_tokens = 200, settings.max_length = 40, settings.epochs = 3, settings.warm_up = 10;
        settings.out = folder.path() / "run";
    }
    NamedTensors train(std::int64_t steps, bool resume) {
        Settings s = settings;
        s.steps = steps, s.resume = resume;
        Trainer trainer(s, corpus, *pieces, *pieces);
        std::atomic<bool> stop = false;
        trainer.run(stop);
        return trainer.model().state_dict();
    }
    Corpus corpus = toy_corpus();
    TemporaryFolder folder;
    std::optional<Tokenizer> pieces;
    Settings settings;
};

bool same_bits(const NamedTensors& a, const NamedTensors& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i].first != b[i].first || a[i].second.to_vector<float>() != b[i].second.to_vector<float>()) return false;
    return true;
}

/// The most likely next piece by the whole decoder, without a cache: what beam 1 must find.
std::vector<std::int64_t> plain_greedy(const Transformer& model, const std::vector<std::int64_t>& source) {
    const NoGrad scope;
    const Tensor ids = Tensor::from(source, {1, std::int64_t(source.size())}, Device{});
    std::vector<std::int64_t> target{bos_id};
    const auto longest = std::size_t(1.5 * double(source.size())) + 10;
    while (target.size() <= longest) {
        const Tensor logits = model(ids, Tensor::from(target, {1, std::int64_t(target.size())}, Device{}));
        const std::int64_t next = argmax(select(select(logits, 0, 0), 0, -1), 0).item<std::int64_t>();
        if (next == eos_id) break;
        target.push_back(next);
    }
    return {target.begin() + 1, target.end()};
}

/// log p(target, eos | source) / length, as the search scores it.
double score_of(const Transformer& model, const std::vector<std::int64_t>& source,
                const std::vector<std::int64_t>& target) {
    const NoGrad scope;
    std::vector<std::int64_t> framed = frame_target(target);
    const std::vector<std::int64_t> labels(framed.begin() + 1, framed.end());
    framed.pop_back();
    const Tensor logits = model(Tensor::from(source, {1, std::int64_t(source.size())}, Device{}),
                                Tensor::from(framed, {1, std::int64_t(framed.size())}, Device{}));
    return -cross_entropy(select(logits, 0, 0), Tensor::from(labels, Device{})).item();
}

}  // namespace

TEST_CASE("a resumed run continues bit for bit", "[translate]") {
    Toy straight, broken;
    const NamedTensors whole = straight.train(16, false);
    broken.train(7, false);
    const NamedTensors resumed = broken.train(16, true);
    CHECK(same_bits(whole, resumed));
    Toy other;
    other.settings.seed = 2;
    CHECK_FALSE(same_bits(whole, other.train(16, false)));
}

TEST_CASE("resuming another run, or none, is refused with every difference", "[translate]") {
    Toy toy;
    toy.settings.resume = true;
    CHECK(contains(error_of([&] { Trainer(toy.settings, toy.corpus, *toy.pieces, *toy.pieces); }),
                   "--resume found no checkpoint in"));
    toy.train(2, false);
    toy.settings.seed = 9, toy.settings.lr = 0.5;
    const std::string message = error_of([&] { Trainer(toy.settings, toy.corpus, *toy.pieces, *toy.pieces); });
    CHECK(contains(message, "run.seed is 1 there and 9 now"));
    CHECK(contains(message, "run.lr is 0.001 there and 0.5 now"));
}

TEST_CASE("an interrupt saves and says so", "[translate]") {
    Toy toy;
    Trainer trainer(toy.settings, toy.corpus, *toy.pieces, *toy.pieces);
    std::atomic<bool> stop = true;
    const TrainReport report = trainer.run(stop);
    CHECK(report.interrupted);
    CHECK(has_checkpoint(toy.settings.out));
}

TEST_CASE("search with the cache finds what the plain decoder finds", "[translate]") {
    Toy toy;
    toy.settings.epochs = 1;
    Trainer trainer(toy.settings, toy.corpus, *toy.pieces, *toy.pieces);
    std::atomic<bool> stop = false;
    trainer.run(stop);
    trainer.model().eval();
    std::vector<std::vector<std::int64_t>> sources;
    for (std::size_t i = 0; i < 6; ++i) sources.push_back(frame_source(toy.pieces->encode(toy.corpus.test[i].source)));
    DecodeOptions greedy;
    greedy.beam = 1;
    const auto found = translate(trainer.model(), sources, greedy);
    double by_greedy = 0, by_beam = 0;
    DecodeOptions beam;
    beam.rows = 10;  // several groups
    const auto better = translate(trainer.model(), sources, beam);
    for (std::size_t i = 0; i < sources.size(); ++i) {
        CHECK(found[i] == plain_greedy(trainer.model(), sources[i]));
        by_greedy += score_of(trainer.model(), sources[i], found[i]);
        by_beam += score_of(trainer.model(), sources[i], better[i]);
        // Sentences searched together or alone give the same translation.
        CHECK(translate(trainer.model(), {sources[i]}, beam)[0] == better[i]);
    }
    CHECK(by_beam >= by_greedy);
}

TEST_CASE("settings that make no sense are named", "[translate]") {
    Settings s;
    s.d_model = 10, s.heads = 4;
    CHECK(error_of([&] { check_settings(s); }) == "translate: --d-model 10 does not divide into --heads 4");
    s = Settings();
    s.dropout = 1;
    CHECK(contains(error_of([&] { check_settings(s); }), "--dropout must lie in [0, 1): got 1"));
    s = Settings();
    s.batch_tokens = 10;
    CHECK(contains(error_of([&] { check_settings(s); }), "--batch-tokens 10 is below --max-length 80"));
}

TEST_CASE("a history survives the checkpoint, a malformed one is refused", "[translate]") {
    History history;
    history.step = {50, 100}, history.loss = {7.25, 6.5};
    history.valid_step = {120}, history.valid_loss = {6}, history.valid_bleu = {0.5};
    const History back = History::parse(history.text());
    CHECK(back.loss == history.loss);
    CHECK(back.valid_bleu == history.valid_bleu);
    CHECK(contains(error_of([] { History::parse("t 1 2 x 3"); }), "history is malformed near \"x\""));
}

}  // namespace gradus::examples
