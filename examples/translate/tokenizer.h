// Text to piece numbers and back: a byte-pair encoding by SentencePiece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace gradus::examples {

/// The numbers of the four special pieces, the same in every model.
inline constexpr int64_t pad_id = 0, unknown_id = 1, bos_id = 2, eos_id = 3;

/// A trained vocabulary. A text that holds characters never seen falls back to their bytes, so nothing is unknown.
class Tokenizer {
  public:
    /// Learns a byte-pair encoding of `vocabulary` pieces (4 special ones and 256 bytes among them) and writes it to
    /// `file` in one rename; a text too small for that many gives as many as it holds. The same sentences always give
    /// the same file. Throws gradus::Error on an empty text, a vocabulary too small for its characters, or a full disk.
    static void train(const std::vector<std::string>& sentences, const std::filesystem::path& file,
                      int64_t vocabulary = 8000);

    /// Reads a model. Throws gradus::Error when the file is missing, damaged, or made with other special pieces.
    explicit Tokenizer(const std::filesystem::path& file);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    /// The pieces of a text, without begin and end marks; an empty or blank text has none.
    std::vector<int64_t> encode(std::string_view text) const;

    /// The text of pieces; special ones are left out. Throws gradus::Error for a number outside [0, size()).
    std::string decode(const std::vector<int64_t>& ids) const;

    /// The piece as it stands in the vocabulary, "▁" marking a word's begin. Throws gradus::Error like `decode`.
    std::string piece(int64_t id) const;

    /// The number of pieces.
    int64_t size() const;

  private:
    void check_id(const char* op, int64_t id) const;

    std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
};

}  // namespace gradus::examples
