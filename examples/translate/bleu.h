// BLEU as sacreBLEU computes it: one number for how near translations come to their references.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::examples {

/// The "13a" tokens of the mteval script: punctuation apart from words, except within numbers.
std::vector<std::string> tokenize_13a(std::string_view line);

/// A corpus BLEU with its parts; index n - 1 belongs to n-grams.
struct BleuScore {
    double score = 0;                                     // 0..100
    std::array<double, 4> precisions{};                   // 0..100
    double brevity_penalty = 0;                           // 0..1
    int64_t hypothesis_length = 0, reference_length = 0;  // in tokens
    std::array<int64_t, 4> matches{}, totals{};           // clipped matches, and all n-grams of the hypotheses
    std::string signature;                                // how it was computed, in sacreBLEU's notation
};

/// BLEU = 100 * BP * exp(mean over n = 1..4 of ln p_n) of detokenised translations with one reference each, over the
/// whole corpus; case counts, "13a" tokens, "exp" smoothing, no effective order. p_n is the clipped matches over all
/// n-grams; the k-th order without a match counts as 1 / (2^k totals). Without any match, or without any n-gram of some
/// order, it is 0. BP = 1, or exp(1 - reference length / hypothesis length) when the translations are shorter. Throws
/// gradus::Error when the numbers of lines differ or are zero.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

/// "BLEU = 12.34 40.1/17.2/9.0/5.1 (BP = 0.950 ratio = 0.951 hyp_len = 951 ref_len = 1000)", as sacreBLEU prints it.
std::string to_string(const BleuScore& bleu);

}  // namespace gradus::examples
