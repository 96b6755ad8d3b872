#include <doctest/doctest.h>

#include <cmath>

#include "data/translation/corpus_scorer.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("BLEU follows its equation") {
  // 6 of 7 words, 4 of 6 pairs, 2 of 5 triples and 1 of 4 quadruples occur in the reference.
  const BleuStatistics statistics = count_bleu("a b c d x e f", {"a b c d e f g"});
  CHECK(statistics.matches == std::array<int64_t, 4>{6, 4, 2, 1});
  CHECK(statistics.totals == std::array<int64_t, 4>{7, 6, 5, 4});
  const BleuScore bleu = compute_bleu(statistics);
  CHECK(bleu.score == doctest::Approx(100 * std::pow(6.0 / 7 * 4 / 6 * 2 / 5 * 1 / 4, 0.25)));
  CHECK(bleu.format() ==
        "BLEU = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)");
}

TEST_CASE("orders without matches are smoothed, and a missing order gives 0 without effective order") {
  const BleuStatistics smoothed = count_bleu("a x b y c", {"a b c d e"});
  CHECK(compute_bleu(smoothed).precisions == std::array<double, 4>{60, 12.5, 100.0 / 12, 6.25});
  const BleuStatistics brief = count_bleu("a b", {"a b c"});
  CHECK(compute_bleu(brief).score == 0);
  CHECK(compute_bleu(brief, true).score == doctest::Approx(100 * std::exp(-0.5)));
  CHECK(compute_bleu(count_bleu("x", {"a"}), true).score == 0);
  CHECK(compute_bleu({}).format() ==
        "BLEU = 0.00 0.0/0.0/0.0/0.0 (BP = 1.000 ratio = 0.000 hyp_len = 0 ref_len = 0)");
}

TEST_CASE("with several references, counts are clipped per reference and the closest length counts") {
  const BleuStatistics statistics = count_bleu("a a a b", {"a a", "b a c d e f"});
  CHECK(statistics.matches == std::array<int64_t, 4>{3, 1, 0, 0});
  CHECK(statistics.reference_length == 2);  // in a tie, the shorter
  CHECK(count_bleu("a a a b", {"a", "b a c d e"}).reference_length == 5);
}

TEST_CASE("chrF2 follows its equation, ignores white space and chooses the best reference") {
  const ChrfStatistics statistics = count_chrf("ab c", {"abd"});
  CHECK(statistics.matches == std::array<int64_t, 6>{2, 1, 0, 0, 0, 0});
  const double mean = (2.0 / 3 + 1.0 / 2 + 0) / 3;  // precision and recall
  CHECK(compute_chrf(statistics) == doctest::Approx(100 * mean));
  CHECK(compute_chrf(count_chrf("ab c", {"x", "a\u3000bc", ""})) == 100);
  CHECK(compute_chrf(count_chrf("", {"a"})) == 0);
  CHECK(compute_chrf(count_chrf("A", {"a"}, {.lower_case = true})) == 100);
  // Without a reference n-gram, an n-gram of the hypothesis does not count.
  CHECK(count_chrf("abc", {"a"}).hypothesis_totals == std::array<int64_t, 6>{3, 0, 0, 0, 0, 0});
  CHECK(format_chrf(53.0249) == "chrF2 = 53.02");
}

TEST_CASE("scores need references, in the same number for all segments") {
  CHECK(message_of<std::invalid_argument>([] { count_bleu("a", {}); }) ==
        "BLEU: expected at least one reference, got none");
  CHECK(message_of<std::invalid_argument>([] { count_chrf("a", {}); }) ==
        "chrF: expected at least one reference, got none");
  CorpusScorer scorer({{}}, {}, 2);
  scorer.add("a", {"a", "b"});
  CHECK(message_of<std::invalid_argument>([&] { scorer.add("a", {"a"}); }) ==
        "segment 2 has 1 references, expected 2");
  CHECK(scorer.segment_count() == 1);
}

TEST_CASE("signatures name the tokenizer, the case and the number of references") {
  CHECK(make_bleu_signature({BleuTokenizer::international, true}, 2) ==
        "nrefs:2|case:lc|eff:no|tok:intl|smooth:exp|version:2.6.0");
  CHECK(make_bleu_signature({}, 1) == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
  CHECK(make_chrf_signature({}, 1) == "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0");
}
