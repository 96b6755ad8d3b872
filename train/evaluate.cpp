#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>

namespace tapeformer {

double unmasked_tokens(const Batch& batch) {
  if (!batch.mask.defined()) return static_cast<double>(batch.tokens.size(0) * (batch.tokens.size(1) - 1));
  const auto mask = batch.mask.to_vector();
  return static_cast<double>(std::count_if(mask.begin(), mask.end(), [](double m) { return m != 0; }));
}

Evaluation evaluate(const AutoregressiveModel& model, const Dataset& dataset, int64_t batch_size,
                    int64_t limit, uint64_t seed, const StopCheck& stop) {
  const auto start = std::chrono::steady_clock::now();
  const bool categorical = model.options().head == Head::categorical;
  Evaluation result;
  result.split = dataset.info().split;
  result.examples = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  double nats = 0, correct = 0, tokens = 0;
  for (int64_t first = 0; first < result.examples; first += batch_size) {
    throw_if_stopped(stop);
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, result.examples - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Batch batch = dataset.batch(indices);
    const double count = unmasked_tokens(batch);
    const AutoregressiveModel::Scores scores = model.score(batch, seed);
    if (!std::isfinite(scores.nats))
      throw DivergedError(concat_text("evaluation of the split \"", result.split,
                                      "\": the logits of examples ", indices.front(), " to ", indices.back(),
                                      " have no finite loss"));
    nats += scores.nats * count;
    correct += scores.accuracy * count;
    tokens += count;
  }
  result.nats_per_dim = tokens > 0 ? nats / tokens : 0;
  result.bits_per_dim = result.nats_per_dim / std::numbers::ln2;
  if (categorical) result.accuracy = tokens > 0 ? correct / tokens : 0;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace tapeformer
