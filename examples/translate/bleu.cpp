#include "gradus/examples/translate/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "gradus/core/error.h"

namespace gradus::examples {

namespace {

constexpr size_t orders = 4;

// The length in bytes of the white-space character at `at` in UTF-8 (Unicode's White_Space and the separators
// U+001C..1F), or 0.
size_t space_length(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0; };
    const int c = byte(0);
    if ((c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20)) return 1;
    if (c == 0xc2 && (byte(1) == 0x85 || byte(1) == 0xa0)) return 2;
    const int wide = (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    if (c < 0xe1 || c > 0xe3 || byte(2) == 0) return 0;
    const bool space = wide == 0x1680 || (wide >= 0x2000 && wide <= 0x200a) || wide == 0x2028 || wide == 0x2029 ||
                       wide == 0x202f || wide == 0x205f || wide == 0x3000;
    return space ? 3 : 0;
}

std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> words;
    size_t start = 0;
    for (size_t at = 0; at <= text.size();) {
        const size_t space = at < text.size() ? space_length(text, at) : 1;
        if (space == 0) {
            ++at;
            continue;
        }
        if (at > start) words.emplace_back(text.substr(start, at - start));
        start = at += space;
    }
    return words;
}

std::string_view strip_end(std::string_view text) {
    for (size_t length = 1; length <= 3;) {
        if (text.size() >= length && space_length(text, text.size() - length) == length) {
            text.remove_suffix(length);
            length = 1;
        } else {
            ++length;
        }
    }
    return text;
}

std::string replace(std::string text, std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_other(char c) { return !is_digit(c); }
bool is_point(char c) { return c == '.' || c == ','; }
bool is_hyphen(char c) { return c == '-'; }

// ASCII punctuation that always stands apart: all but ' , - and the full stop.
bool stands_apart(char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return c > ' ' && c <= '~' && !letter && !is_digit(c) && c != '\'' && !is_point(c) && !is_hyphen(c);
}

// Puts spaces into each pair of characters that the two tests accept; pairs do not overlap. A character of several
// bytes is no digit and no point, so its last (or first) byte may stand for it.
template <class First, class Second>
std::string space_pairs(const std::string& text, First first, Second second, bool before_first, bool round_second) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (i + 1 >= text.size() || !first(text[i]) || !second(text[i + 1])) {
            out += text[i];
            continue;
        }
        if (before_first) out += ' ';
        out += text[i];
        out += ' ';
        out += text[++i];
        if (round_second) out += ' ';
    }
    return out;
}

using Counts = std::unordered_map<std::string, int64_t>;

Counts count_ngrams(const std::vector<std::string>& tokens, size_t n) {
    Counts counts;
    for (size_t i = 0; i + n <= tokens.size(); ++i) {
        std::string key = tokens[i];
        for (size_t j = 1; j < n; ++j) key += " " + tokens[i + j];
        ++counts[key];
    }
    return counts;
}

void finish(BleuScore& bleu) {
    const auto hypothesis = static_cast<double>(bleu.hypothesis_length);
    const auto reference = static_cast<double>(bleu.reference_length);
    const bool is_short = bleu.hypothesis_length < bleu.reference_length;
    bleu.brevity_penalty = !is_short ? 1 : hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0;
    if (std::all_of(bleu.matches.begin(), bleu.matches.end(), [](int64_t m) { return m == 0; })) return;
    double smoothing = 1, logarithms = 0;
    for (size_t n = 0; n < orders; ++n) {
        if (bleu.totals[n] == 0) return;
        const auto total = static_cast<double>(bleu.totals[n]);
        if (bleu.matches[n] == 0) {
            smoothing *= 2;
            bleu.precisions[n] = 100 / (smoothing * total);
        } else {
            bleu.precisions[n] = 100 * static_cast<double>(bleu.matches[n]) / total;
        }
        logarithms += std::log(bleu.precisions[n]);
    }
    bleu.score = bleu.brevity_penalty * std::exp(logarithms / orders);
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
    std::string text(line);
    text = replace(text, "<skipped>", "");
    text = replace(text, "-\n", "");
    text = replace(text, "\n", " ");
    text = replace(text, "&quot;", "\"");
    text = replace(text, "&amp;", "&");
    text = replace(text, "&lt;", "<");
    text = replace(text, "&gt;", ">");
    std::string spaced = " ";
    for (const char c : text) {
        if (stands_apart(c)) {
            spaced += ' ';
            spaced += c;
            spaced += ' ';
        } else {
            spaced += c;
        }
    }
    spaced += ' ';
    spaced = space_pairs(spaced, is_other, is_point, false, true);
    spaced = space_pairs(spaced, is_point, is_other, true, false);
    spaced = space_pairs(spaced, is_digit, is_hyphen, false, true);
    return split(spaced);
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
    check(hypotheses.size() == references.size(), "corpus_bleu: ", static_cast<int64_t>(hypotheses.size()),
          " translations for ", static_cast<int64_t>(references.size()), " references");
    check(!hypotheses.empty(), "corpus_bleu: there is nothing to score");
    BleuScore bleu;
    bleu.signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:gradus";
    for (size_t i = 0; i < hypotheses.size(); ++i) {
        const std::vector<std::string> hypothesis = tokenize_13a(strip_end(hypotheses[i]));
        const std::vector<std::string> reference = tokenize_13a(strip_end(references[i]));
        bleu.hypothesis_length += static_cast<int64_t>(hypothesis.size());
        bleu.reference_length += static_cast<int64_t>(reference.size());
        for (size_t n = 1; n <= orders; ++n) {
            const Counts wanted = count_ngrams(reference, n);
            for (const auto& [ngram, count] : count_ngrams(hypothesis, n)) {
                bleu.totals[n - 1] += count;
                const auto found = wanted.find(ngram);
                if (found != wanted.end()) bleu.matches[n - 1] += std::min(count, found->second);
            }
        }
    }
    finish(bleu);
    return bleu;
}

std::string to_string(const BleuScore& bleu) {
    char buffer[200];
    const double ratio = bleu.reference_length > 0
                             ? static_cast<double>(bleu.hypothesis_length) / static_cast<double>(bleu.reference_length)
                             : 0;
    std::snprintf(buffer, sizeof buffer,
                  "BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)", bleu.score,
                  bleu.precisions[0], bleu.precisions[1], bleu.precisions[2], bleu.precisions[3], bleu.brevity_penalty,
                  ratio, static_cast<long long>(bleu.hypothesis_length), static_cast<long long>(bleu.reference_length));
    return buffer;
}

}  // namespace gradus::examples
