// The Chinese-English sentence pairs, made from Debian packages once and read from a cache afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/examples/common/fetch.h"

namespace gradus::examples {

/// A sentence and its translation.
struct SentencePair {
    std::string source;  // Chinese
    std::string target;  // English
};

/// Pairs to learn from, to choose the checkpoint by, and to measure on; no pair is in two of them.
struct Corpus {
    std::vector<SentencePair> train, valid, test;
};

/// small: LibreOffice's help and interface, about 33,000 pairs from 6 MB of packages. full: these, Cataclysm-DDA, Krita
/// and digiKam, about 88,000 pairs from 50 MB.
enum class CorpusKind { small, full };

/// "small" or "full".
std::string to_string(CorpusKind kind);

/// The Debian packages of a corpus, in the order in which they are read.
std::vector<std::string> corpus_packages(CorpusKind kind);

/// The corpus from `cache`. The first call downloads the packages (cache/deb), runs `script` (extract_pairs.py) with
/// python3 and publishes the result by one rename (cache/corpus/<kind>); later calls only read. A changed script
/// prepares it anew. Throws gradus::Error naming what is missing and the fix.
Corpus load_corpus(CorpusKind kind, const std::filesystem::path& cache, const std::filesystem::path& script,
                   const Message& message);

/// Reads train.tsv, valid.tsv and test.tsv of a folder. Throws gradus::Error when one is missing, malformed, or when
/// there is no training, validation or test pair.
Corpus read_corpus(const std::filesystem::path& folder);

/// The pairs of a text of lines "source TAB target"; `name` is the file named in errors. Throws gradus::Error, with the
/// line's number, on a line that has not exactly two sides, an empty side, or bytes that are not UTF-8.
std::vector<SentencePair> parse_pairs(std::string_view text, const std::string& name);

}  // namespace gradus::examples
