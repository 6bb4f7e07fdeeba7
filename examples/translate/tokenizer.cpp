#include "gradus/examples/translate/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "gradus/core/error.h"
#include "gradus/examples/common/files.h"

namespace gradus::examples {

namespace {

class VectorIterator : public sentencepiece::SentenceIterator {
  public:
    explicit VectorIterator(const std::vector<std::string>& sentences) : sentences_(sentences) {}
    bool done() const override { return next_ >= sentences_.size(); }
    void Next() override { ++next_; }
    const std::string& value() const override { return sentences_[next_]; }
    sentencepiece::util::Status status() const override { return {}; }

  private:
    const std::vector<std::string>& sentences_;
    size_t next_ = 0;
};

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

}  // namespace

void Tokenizer::train(const std::vector<std::string>& sentences, const std::filesystem::path& file,
                      int64_t vocabulary) {
    check(!std::all_of(sentences.begin(), sentences.end(), is_blank),
          "tokenizer: cannot learn a vocabulary from an empty text: ", static_cast<int64_t>(sentences.size()),
          " sentences, all blank");
    check(vocabulary > 260 && vocabulary <= 1000000, "tokenizer: a vocabulary of ", vocabulary,
          " lies outside 261..1000000; 260 are the special pieces and the bytes");
    const std::unordered_map<std::string, std::string> options = {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(vocabulary)},
        {"hard_vocab_limit", "false"},
        {"byte_fallback", "true"},
        {"character_coverage", "0.9995"},
        {"pad_id", std::to_string(pad_id)},
        {"unk_id", std::to_string(unknown_id)},
        {"bos_id", std::to_string(bos_id)},
        {"eos_id", std::to_string(eos_id)},
        {"num_threads", "1"},
        {"minloglevel", "2"},
    };
    VectorIterator iterator(sentences);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
    check(status.ok(), "tokenizer: cannot learn ", vocabulary, " pieces from ", static_cast<int64_t>(sentences.size()),
          " sentences: ", status.ToString(), "; try another vocabulary size");
    write_file(file, model);
}

Tokenizer::Tokenizer(const std::filesystem::path& file)
    : model_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
    const std::string bytes = read_file(file);
    const auto status = model_->LoadFromSerializedProto(bytes);
    // A damaged file may still parse, as a model without pieces.
    check(status.ok() && model_->GetPieceSize() > 260, "tokenizer: ", file.string(),
          " is no SentencePiece model or damaged: ", status.ok() ? "too few pieces" : status.ToString(),
          "; delete it to learn it anew");
    check(model_->pad_id() == pad_id && model_->unk_id() == unknown_id && model_->bos_id() == bos_id &&
              model_->eos_id() == eos_id,
          "tokenizer: ", file.string(), " has pad, unknown, begin, end = ", model_->pad_id(), ", ", model_->unk_id(),
          ", ", model_->bos_id(), ", ", model_->eos_id(), " instead of 0, 1, 2, 3; delete it to learn it anew");
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
    std::vector<int> ids;
    const auto status = model_->Encode({text.data(), text.size()}, &ids);
    check(status.ok(), "tokenizer: cannot encode a text of ", static_cast<int64_t>(text.size()),
          " bytes: ", status.ToString());
    return {ids.begin(), ids.end()};
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
    std::vector<int> plain;
    for (const int64_t id : ids) {
        check_id("decode", id);
        if (id != pad_id && id != bos_id && id != eos_id) plain.push_back(static_cast<int>(id));
    }
    std::string text;
    const auto status = model_->Decode(plain, &text);
    check(status.ok(), "tokenizer: cannot decode ", static_cast<int64_t>(ids.size()), " pieces: ", status.ToString());
    return text;
}

std::string Tokenizer::piece(int64_t id) const {
    check_id("piece", id);
    return model_->IdToPiece(static_cast<int>(id));
}

int64_t Tokenizer::size() const { return model_->GetPieceSize(); }

void Tokenizer::check_id(const char* op, int64_t id) const {
    check(id >= 0 && id < size(), "tokenizer: ", op, ": piece ", id, " lies outside [0, ", size(), ")");
}

}  // namespace gradus::examples
