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
                    int64_t limit, uint64_t seed, const StopCheck& stop, Communicator& processes) {
  const auto start = std::chrono::steady_clock::now();
  const bool categorical = model.options().head == Head::categorical;
  Evaluation result;
  result.split = dataset.info().split;
  result.examples = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  const int64_t batches = (result.examples + batch_size - 1) / batch_size, size = processes.size();
  // Sums of each batch: nats, correct predictions, predictions. One process adds the sums of a batch, so the
  // totals do not depend on the number of processes.
  const Tensor sums = Tensor::zeros({3, std::max<int64_t>(batches, 1)}, DType::float64);
  double* const nats = sums.data<double>();
  double* const correct = nats + sums.size(1);
  double* const tokens = correct + sums.size(1);
  for (int64_t round = 0; round * size < batches; ++round) {
    throw_if_stopped(stop);
    const int64_t number = round * size + processes.rank(), first = number * batch_size;
    if (number >= batches) continue;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, result.examples - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Batch batch = dataset.batch(indices);
    const AutoregressiveModel::Scores scores = model.score(batch, seed);
    if (!std::isfinite(scores.nats))
      throw DivergedError(concat_text("evaluation of the split \"", result.split,
                                      "\": the logits of examples ", indices.front(), " to ", indices.back(),
                                      " have no finite loss"));
    tokens[number] = unmasked_tokens(batch);
    nats[number] = scores.nats * tokens[number];
    correct[number] = scores.accuracy * tokens[number];
  }
  processes.all_reduce(sums);
  const double count = std::accumulate(tokens, tokens + batches, 0.0);
  const auto mean = [&](const double* of) {
    return count > 0 ? std::accumulate(of, of + batches, 0.0) / count : 0;
  };
  result.nats_per_dim = mean(nats);
  result.bits_per_dim = result.nats_per_dim / std::numbers::ln2;
  if (categorical) result.accuracy = mean(correct);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace tapeformer
