#include "gradus/examples/translate/bleu.h"

#include <cmath>

#include "gradus/tests/support.h"

using namespace gradus::examples;
using gradus::tests::contains;
using gradus::tests::error_of;

namespace {

std::string tokens(const std::string& line) {
    std::string out;
    for (const std::string& token : tokenize_13a(line)) out += (out.empty() ? "" : "|") + token;
    return out;
}

double bleu(const std::string& hypothesis, const std::string& reference) {
    return corpus_bleu({hypothesis}, {reference}).score;
}

bool near(double a, double b) { return std::abs(a - b) < 5e-10; }

}  // namespace

// The numbers below were computed by sacrebleu 2.6.0 (corpus_score, default options).
TEST_CASE("BLEU equals sacreBLEU's on single sentences", "[examples][bleu]") {
    CHECK(near(bleu("a b c d e", "a b x d e"), 30.213753973568));
    CHECK(near(bleu("It's 3,000.5 - 4-5, (ok)!", "It's 3,000.5 - 4-5 (ok)."), 58.772837251053));
    CHECK(bleu("a", "a") == 0);
    CHECK(bleu("the cat", "the cat sat on the mat") == 0);
    CHECK(near(bleu("the cat sat on the", "the cat sat on the mat today"), 67.032004603564));
    CHECK(near(bleu("The Cat sat on the mat .", "the cat sat on the mat ."), 61.478815295126));
    CHECK(near(bleu("the the the the the", "the cat is on the mat"), 10.400597689005));
    CHECK(near(bleu("Say &quot;hi&quot; &amp; go.", "Say \"hi\" & go."), 100));
    CHECK(bleu("", "the cat") == 0);
    CHECK(bleu("价格 1,000 元。好", "价格 1,000 元。好") == 0);
}

TEST_CASE("BLEU of a corpus sums counts, not scores", "[examples][bleu]") {
    const BleuScore score = corpus_bleu({"the quick brown fox jumps", "hello world , this is fine"},
                                        {"the quick brown fox jumped over", "hello world, this was fine."});
    CHECK(near(score.score, 49.543021995694));
    CHECK(to_string(score) == "BLEU = 49.54 81.8/66.7/57.1/40.0 (BP = 0.834 ratio = 0.846 hyp_len = 11 ref_len = 13)");
    CHECK(score.hypothesis_length == 11);
    CHECK(score.reference_length == 13);
    CHECK(near(score.brevity_penalty, std::exp(1 - 13.0 / 11.0)));
    CHECK(contains(score.signature, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"));
    // Order of the lines does not matter.
    CHECK(near(corpus_bleu({"hello world , this is fine", "the quick brown fox jumps"},
                           {"hello world, this was fine.", "the quick brown fox jumped over"})
                   .score,
               score.score));
}

TEST_CASE("BLEU clips matches, smooths empty orders and penalises brevity", "[examples][bleu]") {
    const BleuScore clipped = corpus_bleu({"the the the the the"}, {"the cat is on the mat"});
    CHECK(clipped.matches == std::array<int64_t, 4>{2, 0, 0, 0});
    CHECK(clipped.totals == std::array<int64_t, 4>{5, 4, 3, 2});
    CHECK(near(clipped.precisions[0], 40));
    CHECK(near(clipped.precisions[1], 100.0 / (2 * 4)));
    CHECK(near(clipped.precisions[2], 100.0 / (4 * 3)));
    CHECK(near(clipped.precisions[3], 100.0 / (8 * 2)));
    CHECK(near(clipped.brevity_penalty, std::exp(1 - 6.0 / 5.0)));
    const BleuScore none = corpus_bleu({"x y z w v"}, {"a b c d e"});
    CHECK(none.score == 0);
    CHECK(none.precisions == std::array<double, 4>{0, 0, 0, 0});
    CHECK(corpus_bleu({"", ""}, {"", ""}).score == 0);
}

TEST_CASE("BLEU refuses what cannot be scored", "[examples][bleu]") {
    CHECK(contains(error_of([] { corpus_bleu({"a"}, {}); }), "1 translations for 0 references"));
    CHECK(contains(error_of([] { corpus_bleu({}, {}); }), "nothing to score"));
}

TEST_CASE("13a tokens part punctuation outside numbers", "[examples][bleu]") {
    CHECK(tokens("It's 3,000.5 - 4-5, (ok)!") == "It's|3,000.5|-|4|-|5|,|(|ok|)|!");
    CHECK(tokens("a.b 1.5 .5 5. x,y") == "a|.|b|1.5|.|5|5|.|x|,|y");
    CHECK(tokens("{x}~[y]\\^_`z") == "{|x|}|~|[|y|]|\\|^|_|`|z");
    CHECK(tokens("\"a\"#b$c%d&e*f+g/h:i;j<k=l>m?n@o|p") ==
          "\"|a|\"|#|b|$|c|%|d|&|e|*|f|+|g|/|h|:|i|;|j|<|k|=|l|>|m|?|n|@|o|||p");
    CHECK(tokens("don't well-known 2-day") == "don't|well-known|2|-|day");
    CHECK(tokens("a<skipped>b &amp;lt; c-\nd\ne") == "ab|<|cd|e");
    CHECK(tokens("...a,,b") == ".|.|.|a|,|,|b");
    CHECK(tokens("  ").empty());
    CHECK(tokens("a\xc2\xa0"
                 "b\xe3\x80\x80"
                 "c\xe2\x80\xa8"
                 "d\x1c"
                 "e\tf") == "a|b|c|d|e|f");
    CHECK(tokens("价格 1,000 元。好,x") == "价格|1,000|元。好|,|x");
}
