#include "train/tasks/translation/evaluate.h"

#include <cmath>
#include <sstream>

#include "core/base/errors.h"
#include "core/stopwatch.h"
#include "data/batches/bucket_plan.h"
#include "data/text/unknown_tokens.h"
#include "train/distributed/gather.h"
#include "train/evaluate.h"

namespace tapeformer {
namespace {

struct ScoredPair {
  double nats = 0;
  int64_t unknown_count = 0;  // of the tokens of the translation
  std::string translation = {};
};

// Writes the pairs with their indices as lines of text, which read_pairs() reads. Hexadecimal numbers keep
// all bits, so that the sum does not depend on the number of processes.
std::string write_pairs(const std::vector<std::pair<int64_t, ScoredPair>>& pairs) {
  std::string text;
  for (const auto& [index, pair] : pairs) {
    char nats[48];
    std::snprintf(nats, sizeof nats, "%a", pair.nats);
    text += concat_text(index, " ", nats, " ", pair.unknown_count, " ", pair.translation, "\n");
  }
  return text;
}

void read_pairs(const std::string& text, std::vector<ScoredPair>& pairs) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    char* end = nullptr;
    ScoredPair& pair = pairs[static_cast<size_t>(std::strtoll(line.c_str(), &end, 10))];
    pair.nats = std::strtod(end, &end);
    pair.unknown_count = std::strtoll(end, &end, 10);
    pair.translation = line.substr(static_cast<size_t>(end - line.c_str()) + 1);  // can contain NUL
  }
}

// Scores the pairs of a batch. Adds the time of the search to `seconds`.
std::vector<std::pair<int64_t, ScoredPair>> score_batch(TranslationDecoder& decoder,
                                                        const TranslationDataset& dataset,
                                                        const std::vector<int64_t>& indices,
                                                        const BeamSearchOptions& search, double& seconds) {
  const Batch batch = dataset.batch(indices);
  const Tensor losses = decoder.model().compute_token_losses(batch);
  const Stopwatch watch(kCpu);
  const auto hypotheses = translate(decoder, batch.source, batch.source_lengths, search);
  seconds += watch.measure_elapsed_seconds();
  std::vector<std::pair<int64_t, ScoredPair>> scored;
  for (size_t row = 0; row < indices.size(); ++row) {
    const std::vector<int64_t>& tokens = hypotheses[row].front().tokens;
    const Tokenizer& tokenizer = *dataset.tokenizer();
    ScoredPair pair{0, count_unknown(tokenizer, tokens), decode_line(tokenizer, tokens)};
    const double* const nats = losses.data<double>() + static_cast<int64_t>(row) * losses.size(1);
    for (int64_t t = 0; t < losses.size(1); ++t) pair.nats += nats[t];
    if (!std::isfinite(pair.nats)) throw DivergenceError("the loss of an evaluation is not finite");
    scored.emplace_back(indices[row], std::move(pair));
  }
  return scored;
}

}  // namespace

TranslationEvaluation evaluate(const TranslationModel& model, const TranslationDataset& dataset,
                               const TranslatorOptions& options, const StopCheck& stop,
                               Communicator& processes) {
  const NoGradScope no_grad;
  const std::vector<int64_t> lengths = dataset.lengths();
  const auto batches = plan_batches(
      lengths,
      {.max_batch_length = options.batch_tokens, .max_examples = options.batch_sentences, .shuffle = false},
      0);
  std::string own;
  double search_seconds = 0, searched = 0;
  TranslationDecoder decoder(model);
  visit_own_batches(std::ssize(batches), processes.rank(), processes.size(), stop, [&](int64_t number) {
    const std::vector<int64_t>& indices = batches[static_cast<size_t>(number)];
    own += write_pairs(score_batch(decoder, dataset, indices, options.search, search_seconds));
    searched += static_cast<double>(indices.size());
  });
  std::vector<ScoredPair> pairs(lengths.size());
  for (const std::string& text : all_gather_texts(processes, own)) read_pairs(text, pairs);

  TranslationEvaluation result{.cut_pair_count = dataset.report().cut.count};
  CorpusScorer scorer({{}, {.lower_case = true}, {.tokenizer = BleuTokenizer::international}}, {}, 1);
  double nats = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    nats += pairs[i].nats;
    result.unknown_count += pairs[i].unknown_count;
    result.token_count += dataset.count_target_tokens(index) + 1;
    const std::string reference = dataset.target(index);
    scorer.add(pairs[i].translation, {reference});
  }
  result.nats_per_token = nats / static_cast<double>(result.token_count);
  result.scores = scorer.compute();
  result.sentences_per_second = search_seconds > 0 ? searched / search_seconds : 0;
  return result;
}

}  // namespace tapeformer
