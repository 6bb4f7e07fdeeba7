#include "gradus/examples/translate/tokenizer.h"

#include <algorithm>

#include "gradus/examples/common/files.h"
#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

// Sentences of made-up words, enough for a few hundred pieces.
std::vector<std::string> sentences() {
    const char* syllables[] = {"ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"};
    std::vector<std::string> out;
    uint64_t state = 1;
    for (int i = 0; i < 400; ++i) {
        std::string line;
        for (int word = 0; word < 6; ++word) {
            for (int part = 0; part < 3; ++part) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                line += syllables[(state >> 33) % 10];
            }
            line += word == 5 ? "." : " ";
        }
        out.push_back(line);
    }
    return out;
}

}  // namespace

TEST_CASE("a tokenizer gives texts back, bytes of unseen characters included", "[examples][tokenizer]") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "a.model";
    Tokenizer::train(sentences(), file, 400);
    const Tokenizer tokenizer(file);
    CHECK(tokenizer.size() == 400);
    for (const std::string& text :
         {std::string("bakeli monura."), std::string("Unseen WORDS, 123!"), std::string("中文 été")}) {
        const auto ids = tokenizer.encode(text);
        CHECK(tokenizer.decode(ids) == text);
        CHECK(std::find(ids.begin(), ids.end(), unknown_id) == ids.end());
    }
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.encode("  ").empty());
    CHECK(tokenizer.decode({}).empty());
    // Learnt pieces are longer than characters.
    CHECK(tokenizer.encode("bakeli monura").size() < 13);
    auto framed = tokenizer.encode("bakeli");
    framed.insert(framed.begin(), bos_id);
    framed.insert(framed.end(), {eos_id, pad_id, pad_id});
    CHECK(tokenizer.decode(framed) == "bakeli");
    CHECK(tokenizer.piece(eos_id) == "</s>");
    CHECK(contains(error_of([&] { tokenizer.decode({3, 400}); }), "piece 400 lies outside [0, 400)"));
    CHECK(contains(error_of([&] { tokenizer.decode({-1}); }), "piece -1"));
}

TEST_CASE("the same sentences give the same model", "[examples][tokenizer]") {
    const TemporaryFolder folder;
    Tokenizer::train(sentences(), folder.path() / "a", 300);
    Tokenizer::train(sentences(), folder.path() / "b", 300);
    CHECK(read_file(folder.path() / "a") == read_file(folder.path() / "b"));
}

TEST_CASE("a small text gives the pieces it holds", "[examples][tokenizer]") {
    const TemporaryFolder folder;
    Tokenizer::train({"to be or not to be", "that is the question"}, folder.path() / "a", 8000);
    const Tokenizer tokenizer(folder.path() / "a");
    CHECK(tokenizer.size() > 260);
    CHECK(tokenizer.size() < 400);
    CHECK(tokenizer.decode(tokenizer.encode("to be that")) == "to be that");
}

TEST_CASE("a tokenizer refuses what it cannot learn from", "[examples][tokenizer]") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "a";
    CHECK(contains(error_of([&] { Tokenizer::train({}, file); }), "empty text"));
    CHECK(contains(error_of([&] { Tokenizer::train({"", " \t"}, file); }), "2 sentences, all blank"));
    CHECK(contains(error_of([&] { Tokenizer::train({"a"}, file, 260); }), "a vocabulary of 260"));
    CHECK(contains(error_of([&] { Tokenizer::train(sentences(), file, 262); }), "cannot learn 262 pieces"));
    CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a missing, damaged or foreign model is one clear error", "[examples][tokenizer]") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "a.model";
    CHECK(contains(error_of([&] { Tokenizer tokenizer(file); }), file.string()));
    for (const std::string& bytes : {std::string(), std::string("no model"), std::string(1000, '\0')}) {
        write_file(file, bytes);
        CHECK(contains(error_of([&] { Tokenizer tokenizer(file); }), "is no SentencePiece model or damaged"));
    }
    Tokenizer::train(sentences(), file, 300);
    const std::string whole = read_file(file);
    for (const size_t size : {whole.size() / 4, whole.size() / 2, whole.size() - 1}) {
        write_file(file, whole.substr(0, size));
        CHECK(contains(error_of([&] { Tokenizer tokenizer(file); }), "damaged"));
    }
}
