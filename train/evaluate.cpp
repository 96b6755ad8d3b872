#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/system/utf8.h"
#include "data/batches/loader.h"
#include "data/text/tokenizer.h"

namespace tapeformer {

namespace {

// Counts the predicted tokens of a batch, and the bytes and characters of these tokens.
TextScore count_text_units(const Batch& batch, const Tokenizer& tokenizer) {
  const int64_t rows = batch.tokens.size(0), width = batch.tokens.size(1);
  const auto tokens = batch.tokens.to_vector();
  const uint8_t* const mask = batch.mask.defined() ? batch.mask.data<uint8_t>() : nullptr;
  TextScore score;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t t = 1; t < width; ++t) {
      if (mask && !mask[row * (width - 1) + t - 1]) continue;
      score.add_token(tokenizer, static_cast<int64_t>(tokens[static_cast<size_t>(row * width + t)]));
    }
  return score;
}

// A matrix with one row for each evaluated quantity, such as the loss, and one column for each batch. Each
// element is the sum of one quantity over the examples of one batch. Each process sets the columns of the
// batches that the process evaluates. An all_reduce of values() copies all columns to all processes. total()
// adds the elements of a row in the order of the batches, so that the result does not depend on the number of
// processes.
class BatchSums {
 public:
  BatchSums(int64_t sum_count, int64_t batches)
      : values_(Tensor::zeros({sum_count, std::max<int64_t>(batches, 1)}, DType::float64)) {}

  void set(int64_t batch, const std::vector<double>& sums) {
    for (size_t i = 0; i < sums.size(); ++i)
      values_.data<double>()[static_cast<int64_t>(i) * values_.size(1) + batch] = sums[i];
  }
  const Tensor& values() const { return values_; }
  double total(size_t result) const {
    const double* const first = values_.data<double>() + static_cast<int64_t>(result) * values_.size(1);
    return std::accumulate(first, first + values_.size(1), 0.0);
  }

 private:
  Tensor values_;  // (sum_count, batches) float64
};

// The examples of an evaluation, and their order.
struct ScoredExamples {
  int64_t count, batch_size;
  // Whether each batch continues the sequences of the previous batch, as a segment memory requires. If
  // in_streams is true, process 0 scores all batches.
  bool in_streams = false;

  std::vector<int64_t> batch_indices(int64_t batch) const {
    if (in_streams) return compute_stream_indices(count, batch_size, batch);
    const int64_t first = batch * batch_size;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, count - first)));
    std::iota(indices.begin(), indices.end(), first);
    return indices;
  }
};

// Calls `score` for each batch of `examples`. `score` returns a vector of `sum_count` sums over the examples
// of the batch. The first of these sums is the sum of the losses. If examples.in_streams is false, the
// batches are distributed among the processes. All processes return the sums of all batches. Throws
// DivergenceError if a sum of losses is not finite, and StoppedError if `stop` returns true before a batch.
template <class Score>
BatchSums sum_over_batches(const Dataset& dataset, const ScoredExamples& examples, int64_t sum_count,
                           const Score& score, const StopCheck& stop, Communicator& processes) {
  const int64_t batches = (examples.count + examples.batch_size - 1) / examples.batch_size;
  const int64_t workers = examples.in_streams ? 1 : processes.size();
  BatchSums sums(sum_count, batches);
  for (int64_t round = 0; round * workers < batches; ++round) {
    throw_if_stopped(stop);
    const int64_t number = round * workers + processes.rank();
    if (number >= batches || processes.rank() >= workers) continue;
    const std::vector<int64_t> indices = examples.batch_indices(number);
    const std::vector<double> one = score(dataset.batch(indices));
    if (!std::isfinite(one.front()))
      throw DivergenceError(concat_text("evaluation of the split \"", dataset.info().split,
                                        "\": the logits of examples ", indices.front(), " to ",
                                        indices.back(), " have no finite loss"));
    sums.set(number, one);
  }
  processes.all_reduce(sums.values());
  return sums;
}

double measure_seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double count_unmasked_tokens(const Batch& batch) {
  if (!batch.mask.defined()) return static_cast<double>(batch.tokens.size(0) * (batch.tokens.size(1) - 1));
  const auto mask = batch.mask.to_vector();
  return static_cast<double>(std::count_if(mask.begin(), mask.end(), [](double m) { return m != 0; }));
}

void TextScore::add_token(const Tokenizer& tokenizer, int64_t token) {
  const std::string_view text = tokenizer.get_token_text(token);
  ++token_count;
  byte_count += static_cast<int64_t>(text.size());
  character_count += count_utf8_characters(text);
  unknown_count += token == tokenizer.unknown_token();
}
void TextScore::add(const TextScore& other) {
  token_count += other.token_count;
  byte_count += other.byte_count;
  character_count += other.character_count;
  unknown_count += other.unknown_count;
  nats += other.nats;
}

double TextScore::bits_per_byte() const {
  return byte_count > 0 ? nats / std::numbers::ln2 / static_cast<double>(byte_count) : NAN;
}
double TextScore::bits_per_character() const {
  return character_count > 0 ? nats / std::numbers::ln2 / static_cast<double>(character_count) : NAN;
}
double TextScore::perplexity() const {
  return token_count > 0 ? std::exp(nats / static_cast<double>(token_count)) : 1;
}

std::vector<std::pair<std::string, double>> list_named_results(const Evaluation& evaluation) {
  std::vector<std::pair<std::string, double>> results{{"nats_per_dim", evaluation.nats_per_dim},
                                                      {"bits_per_dim", evaluation.bits_per_dim}};
  if (const auto& text = evaluation.text_score) {
    results.emplace_back("bits_per_byte", text->bits_per_byte());
    results.emplace_back("bits_per_character", text->bits_per_character());
    results.emplace_back("perplexity", text->perplexity());
  }
  if (evaluation.accuracy >= 0) results.emplace_back("accuracy", evaluation.accuracy);
  return results;
}

Evaluation evaluate(const AutoregressiveModel& model, const Dataset& dataset, int64_t batch_size,
                    int64_t max_examples, uint64_t seed, const StopCheck& stop, Communicator& processes) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = dataset.tokenizer();
  const auto memory = model.encoder.make_segment_memory(batch_size);
  int64_t segments = 0;  // number of scored segments of each stream
  const auto score = [&](const Batch& batch) {
    if (memory) memory->start_segment(segments++ * dataset.info().length);
    const AutoregressiveModel::EvaluationScores scores = model.compute_scores(batch, seed, memory.get());
    const double count = count_unmasked_tokens(batch);
    const TextScore text = tokenizer ? count_text_units(batch, *tokenizer) : TextScore();
    return std::vector<double>{scores.loss_nats * count,
                               scores.accuracy * count,
                               count,
                               static_cast<double>(text.token_count),
                               static_cast<double>(text.byte_count),
                               static_cast<double>(text.character_count),
                               static_cast<double>(text.unknown_count)};
  };
  Evaluation result;
  result.split = dataset.info().split;
  result.example_count = max_examples > 0 ? std::min(max_examples, dataset.size()) : dataset.size();
  const BatchSums sums = sum_over_batches(dataset, {result.example_count, batch_size, memory != nullptr}, 7,
                                          score, stop, processes);
  const double nats = sums.total(0), correct = sums.total(1), tokens = sums.total(2);
  result.nats_per_dim = tokens > 0 ? nats / tokens : 0;
  result.bits_per_dim = result.nats_per_dim / std::numbers::ln2;
  if (model.options().head == OutputHead::categorical) result.accuracy = tokens > 0 ? correct / tokens : 0;
  const auto count_of = [&](size_t i) { return static_cast<int64_t>(sums.total(i)); };
  if (tokenizer)
    result.text_score = {.token_count = count_of(3),
                         .byte_count = count_of(4),
                         .character_count = count_of(5),
                         .unknown_count = count_of(6),
                         .nats = nats};
  result.seconds = measure_seconds_since(start);
  return result;
}

ExampleEvaluation evaluate(const ExampleModel& model, const Dataset& dataset, int64_t batch_size,
                           int64_t max_examples, uint64_t seed, const StopCheck& stop,
                           Communicator& processes) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> names = model.score_names();
  const auto score = [&](const Batch& batch) {
    std::vector<double> sums = model.compute_scores(batch, seed);
    const auto count = static_cast<double>(batch.inputs().size(0));
    for (double& sum : sums) sum *= count;
    return sums;
  };
  ExampleEvaluation result{
      .split = dataset.info().split,
      .example_count = max_examples > 0 ? std::min(max_examples, dataset.size()) : dataset.size(),
      .scores = {},
      .seconds = 0};
  const BatchSums sums = sum_over_batches(dataset, {result.example_count, batch_size},
                                          static_cast<int64_t>(names.size()), score, stop, processes);
  const auto count = static_cast<double>(std::max<int64_t>(result.example_count, 1));
  for (size_t i = 0; i < names.size(); ++i) result.scores.emplace_back(names[i], sums.total(i) / count);
  result.seconds = measure_seconds_since(start);
  return result;
}

}  // namespace tapeformer
