#include "gradus/examples/translate/settings.h"

#include "gradus/core/error.h"

namespace gradus::examples {

void check_settings(const Settings& s) {
    check(s.layers >= 1 && s.d_model >= 2 && s.hidden >= 1 && s.heads >= 1,
          "translate: --layers, --d-model, --heads and --hidden must be positive");
    check(s.d_model % s.heads == 0, "translate: --d-model ", s.d_model, " does not divide into --heads ", s.heads);
    check(s.dropout >= 0 && s.dropout < 1, "translate: --dropout must lie in [0, 1): got ", s.dropout);
    check(s.lr > 0, "translate: --lr must be positive: got ", s.lr);
    check(s.warm_up >= 1, "translate: --warm-up must be at least 1: got ", s.warm_up);
    check(s.clip > 0, "translate: --clip must be positive: got ", s.clip);
    check(s.label_smoothing >= 0 && s.label_smoothing < 1, "translate: --label-smoothing must lie in [0, 1): got ",
          s.label_smoothing);
    check(s.max_length >= 4 && s.max_length <= 255, "translate: --max-length must lie in [4, 255]: got ", s.max_length);
    check(s.tokens_a_batch() >= s.max_length, "translate: --batch-tokens ", s.batch_tokens, " is below --max-length ",
          s.max_length);
    check(s.epochs >= 0 && s.steps >= 0 && s.minutes >= 0 && s.patience >= 0 && s.test_sentences >= 0 &&
              s.batch_tokens >= 0,
          "translate: --epochs, --steps, --minutes, --patience, --test-sentences and --batch-tokens must not be "
          "negative");
    check(s.layers <= 64, "translate: --layers must be at most 64: got ", s.layers);
    check(s.vocabulary >= 300 && s.vocabulary <= 64000, "translate: --vocabulary must lie in [300, 64000]: got ",
          s.vocabulary);
    check(s.beam >= 1 && s.beam <= 64, "translate: --beam must lie in [1, 64]: got ", s.beam);
    check(s.save_every >= 1, "translate: --save-every must be at least 1: got ", s.save_every);
}

TransformerOptions model_options(const Settings& s, std::int64_t source_pieces, std::int64_t target_pieces) {
    TransformerOptions o;
    o.source_vocabulary = source_pieces, o.target_vocabulary = target_pieces;
    o.d_model = s.d_model, o.heads = s.heads, o.hidden = s.hidden;
    o.encoder_layers = o.decoder_layers = int(s.layers);
    o.dropout = s.dropout;
    return o;
}

void put_settings(Values& values, const Settings& s, const TransformerOptions& m) {
    values["run.example"] = std::string("translate");
    values["run.corpus"] = to_string(s.corpus);
    values["run.vocabulary"] = s.vocabulary;
    values["run.seed"] = std::int64_t(s.seed);
    values["run.lr"] = s.lr, values["run.warm_up"] = s.warm_up, values["run.clip"] = s.clip;
    values["run.label_smoothing"] = s.label_smoothing;
    values["run.batch_tokens"] = s.tokens_a_batch(), values["run.max_length"] = s.max_length;
    values["model.source_vocabulary"] = m.source_vocabulary, values["model.target_vocabulary"] = m.target_vocabulary;
    values["model.d_model"] = m.d_model, values["model.heads"] = m.heads, values["model.hidden"] = m.hidden;
    values["model.layers"] = std::int64_t(m.encoder_layers);
    values["model.longest"] = m.longest;
    values["model.dropout"] = m.dropout;
}

TransformerOptions model_options_at(const Values& values) {
    check(values.count("run.example") && text_at(values, "run.example") == "translate",
          "checkpoint: it was not written by this example: choose another folder with --out");
    TransformerOptions o;
    o.source_vocabulary = integer_at(values, "model.source_vocabulary");
    o.target_vocabulary = integer_at(values, "model.target_vocabulary");
    o.d_model = integer_at(values, "model.d_model"), o.heads = integer_at(values, "model.heads");
    o.hidden = integer_at(values, "model.hidden");
    o.encoder_layers = o.decoder_layers = int(integer_at(values, "model.layers"));
    o.longest = integer_at(values, "model.longest");
    o.dropout = number_at(values, "model.dropout");
    return o;
}

namespace {

std::string shown(const Value& value) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
    if (const auto* number = std::get_if<double>(&value)) return text(*number);
    return std::get<std::string>(value);
}

}  // namespace

void check_same_run(const Values& checkpoint, const Settings& settings, const TransformerOptions& model) {
    Values wanted;
    put_settings(wanted, settings, model);
    std::string differences;
    for (const auto& [name, value] : wanted) {
        const auto found = checkpoint.find(name);
        if (found != checkpoint.end() && found->second == value) continue;
        differences +=
            text(differences.empty() ? "" : ", ", name, " is ",
                 found == checkpoint.end() ? "absent" : shown(found->second), " there and ", shown(value), " now");
    }
    check(differences.empty(), "translate: --resume continues only the same run: ", differences,
          ": use the same options, or another --out");
}

}  // namespace gradus::examples
