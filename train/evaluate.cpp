#include "train/evaluate.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/system/utf8.h"
#include "data/batches/loader.h"
#include "data/text/tokenizer.h"

namespace tapeformer {

namespace {

// Sums over the predictions of a batch. Only texts have bytes, characters and unknown tokens.
struct PredictionSums {
  double nats = 0, correct = 0, tokens = 0, bytes = 0, characters = 0, unknown = 0;

  // Adds the counts of the texts of the predicted tokens.
  void add_texts(const Batch& batch, const Tokenizer& tokenizer) {
    const int64_t rows = batch.tokens.size(0), width = batch.tokens.size(1);
    const auto values = batch.tokens.to_vector();
    const uint8_t* const mask = batch.mask.defined() ? batch.mask.data<uint8_t>() : nullptr;
    TextScore score;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t t = 1; t < width; ++t) {
        if (mask && !mask[row * (width - 1) + t - 1]) continue;
        score.add_token(tokenizer, static_cast<int64_t>(values[static_cast<size_t>(row * width + t)]));
      }
    bytes += static_cast<double>(score.byte_count);
    characters += static_cast<double>(score.character_count);
    unknown += static_cast<double>(score.unknown_count);
  }
  TextScore text_score() const {
    return {.token_count = static_cast<int64_t>(tokens),
            .byte_count = static_cast<int64_t>(bytes),
            .character_count = static_cast<int64_t>(characters),
            .unknown_count = static_cast<int64_t>(unknown),
            .nats = nats};
  }
};

// The examples of an evaluation, and their order.
struct ScoredExamples {
  const Dataset& dataset;
  int64_t count, batch_size;
  // Whether each batch continues the sequences of the previous batch, as a segment memory requires. If
  // in_streams is true, process 0 scores all batches.
  bool in_streams = false;

  ScoredExamples(const Dataset& data, int64_t size, int64_t max_examples, bool are_streams = false)
      : dataset(data),
        count(max_examples > 0 ? std::min(max_examples, data.size()) : data.size()),
        batch_size(size),
        in_streams(are_streams) {}
  int64_t count_batches() const { return (count + batch_size - 1) / batch_size; }
  std::vector<int64_t> batch_indices(int64_t batch) const {
    if (in_streams) return compute_stream_indices(count, batch_size, batch);
    const int64_t first = batch * batch_size;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, count - first)));
    std::iota(indices.begin(), indices.end(), first);
    return indices;
  }
};

// Calls `score` for each batch of this process. `score` returns the sum of the losses of the batch. Throws
// DivergenceError if the sum is not finite.
void score_batches(const ScoredExamples& examples,
                   const std::function<double(int64_t number, const Batch& batch)>& score,
                   const StopCheck& stop, const Communicator& processes) {
  const int size = examples.in_streams ? 1 : processes.size();
  visit_own_batches(examples.count_batches(), processes.rank(), size, stop, [&](int64_t number) {
    const std::vector<int64_t> indices = examples.batch_indices(number);
    if (!std::isfinite(score(number, examples.dataset.batch(indices))))
      throw DivergenceError(concat_text("evaluation of the split \"", examples.dataset.info().split,
                                        "\": the logits of examples ", indices.front(), " to ",
                                        indices.back(), " have no finite loss"));
  });
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

void visit_own_batches(int64_t batches, int rank, int size, const StopCheck& stop,
                       const std::function<void(int64_t number)>& visit) {
  for (int64_t first = 0; first < batches; first += size) {
    throw_if_stopped(stop);
    if (rank < size && first + rank < batches) visit(first + rank);
  }
}

void BatchSums::set(int64_t batch, std::span<const double> sums) const {
  std::copy(sums.begin(), sums.end(), values_.data<double>() + batch * values_.size(1));
}

std::vector<double> BatchSums::total(Communicator& processes) const {
  processes.all_reduce(values_);
  std::vector<double> totals(static_cast<size_t>(values_.size(1)));
  const double* value = values_.data<double>();
  for (int64_t batch = 0; batch < values_.size(0); ++batch)
    for (double& total : totals) total += *value++;
  return totals;
}

Evaluation evaluate(const AutoregressiveModel& model, const Dataset& dataset, int64_t batch_size,
                    int64_t max_examples, uint64_t seed, const StopCheck& stop, Communicator& processes) {
  const auto tokenizer = dataset.tokenizer();
  const auto memory = model.encoder.make_segment_memory(batch_size);
  const ScoredExamples examples(dataset, batch_size, max_examples, memory != nullptr);
  const NamedBatchSums<PredictionSums> sums(examples.count_batches());
  const auto score = [&](int64_t number, const Batch& batch) {
    if (memory) memory->start_segment(number * dataset.info().length);
    const AutoregressiveModel::EvaluationScores scores = model.compute_scores(batch, seed, memory.get());
    PredictionSums one;
    one.tokens = count_unmasked_tokens(batch);
    one.nats = scores.loss_nats * one.tokens;
    one.correct = scores.accuracy * one.tokens;
    if (tokenizer) one.add_texts(batch, *tokenizer);
    sums.set(number, one);
    return one.nats;
  };
  score_batches(examples, score, stop, processes);
  const PredictionSums total = sums.total(processes);
  const double divisor = std::max(total.tokens, 1.0);
  Evaluation result{.example_count = examples.count, .nats_per_dim = total.nats / divisor};
  result.bits_per_dim = result.nats_per_dim / std::numbers::ln2;
  if (model.options().head == OutputHead::categorical) result.accuracy = total.correct / divisor;
  if (tokenizer) result.text_score = total.text_score();
  return result;
}

std::vector<std::pair<std::string, double>> evaluate(const ExampleModel& model, const Dataset& dataset,
                                                     int64_t batch_size, int64_t max_examples, uint64_t seed,
                                                     const StopCheck& stop, Communicator& processes) {
  const std::vector<std::string> names = model.score_names();
  const ScoredExamples examples(dataset, batch_size, max_examples);
  const BatchSums sums(examples.count_batches(), names.size());
  const auto score = [&](int64_t number, const Batch& batch) {
    std::vector<double> one = model.compute_scores(batch, seed);
    for (double& sum : one) sum *= static_cast<double>(batch.inputs().size(0));
    sums.set(number, one);
    return one.front();
  };
  score_batches(examples, score, stop, processes);
  const std::vector<double> totals = sums.total(processes);
  std::vector<std::pair<std::string, double>> scores;
  for (size_t i = 0; i < names.size(); ++i)
    scores.emplace_back(names[i], totals[i] / static_cast<double>(std::max<int64_t>(examples.count, 1)));
  return scores;
}

}  // namespace tapeformer
