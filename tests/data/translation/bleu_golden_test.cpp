// Comparison of BLEU and chrF2 with the Python package sacrebleu; see tests/golden/make_bleu_golden.py.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/translation/corpus_scorer.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Json = nlohmann::json;
using Segments = std::vector<std::vector<std::string>>;

constexpr double kTolerance = 1e-9;

const Json& bleu_golden() {
  static const Json golden = Json::parse(tapeformer::test::read_file(SOURCE_DIR "/tests/golden/bleu.json"));
  return golden;
}

std::vector<BleuOptions> golden_configurations() {
  std::vector<BleuOptions> configurations;
  for (const Json& row : bleu_golden()["configurations"])
    configurations.push_back({parse_bleu_tokenizer(row["tokenizer"]), row["lower_case"]});
  return configurations;
}

std::vector<std::string_view> references_of(const std::vector<std::string>& segment) {
  return {segment.begin() + 1, segment.end()};
}

void check_corpus_score(const CorpusScore& score, const Json& expected) {
  CHECK(std::abs(score.value - expected["score"].get<double>()) < kTolerance);
  CHECK(score.text == expected["text"].get<std::string>());
  CHECK(score.signature == expected["signature"].get<std::string>());
}

}  // namespace

TEST_CASE("BLEU and chrF2 of corpora equal sacrebleu") {
  const auto configurations = golden_configurations();
  REQUIRE(configurations.size() == 8);
  REQUIRE(bleu_golden()["corpora"].size() == 20);
  for (const Json& corpus : bleu_golden()["corpora"]) {
    const auto segments = corpus["segments"].get<Segments>();
    REQUIRE(segments.size() == 100);
    for (const bool lower_case : {false, true}) {
      // The statistics of two halves are added, as if two processes had counted them.
      CorpusScorer halves[] = {
          CorpusScorer(configurations, {lower_case}, segments[0].size() - 1),
          CorpusScorer(configurations, {lower_case}, segments[0].size() - 1),
      };
      for (size_t i = 0; i < segments.size(); ++i)
        halves[i % 3 == 0].add(segments[i][0], references_of(segments[i]));
      halves[0].add(halves[1]);
      CHECK(halves[0].segment_count() == 100);
      const auto scores = halves[0].compute();
      for (size_t i = 0; i < configurations.size(); ++i) check_corpus_score(scores[i], corpus["bleu"][i]);
      check_corpus_score(scores.back(), corpus["chrf"][lower_case ? 1 : 0]);
    }
  }
}

TEST_CASE("BLEU with effective order and chrF2 of segments equal sacrebleu") {
  const auto configurations = golden_configurations();
  for (const Json& corpus : bleu_golden()["corpora"]) {
    const auto segments = corpus["segments"].get<Segments>();
    for (size_t i = 0; i < segments.size(); ++i) {
      CAPTURE(corpus["segments"][i].dump());
      const BleuOptions& options = configurations[i % configurations.size()];
      const auto references = references_of(segments[i]);
      const double bleu = compute_bleu(count_bleu(segments[i][0], references, options), true).score;
      const double chrf = compute_chrf(count_chrf(segments[i][0], references, {options.lower_case}));
      CHECK(std::abs(bleu - corpus["sentence_bleu"][i].get<double>()) < kTolerance);
      CHECK(std::abs(chrf - corpus["sentence_chrf"][i].get<double>()) < kTolerance);
    }
  }
}
