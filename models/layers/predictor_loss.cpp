#include "models/layers/predictor_loss.h"

#include <algorithm>

#include "autograd/chunked.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace tapeformer {
namespace {

double count_unmasked_rows(const Tensor& targets, const Tensor& weights) {
  if (!weights.defined()) return static_cast<double>(targets.size(0));
  const uint8_t* const first = weights.data<uint8_t>();
  return static_cast<double>(
      std::count_if(first, first + weights.numel(), [](uint8_t weight) { return weight != 0; }));
}

}  // namespace

// The loss of several chunks is a weighted sum of their mean losses. The weight of a chunk is its number of
// unmasked rows, divided by the number of unmasked rows in all chunks.
Tensor compute_predictor_loss(const Linear& predictor, const PredictorRows& rows, int64_t chunks,
                              const MeanLoss& loss) {
  if (chunks <= 1) return loss(predictor.forward(rows.encoded), rows.targets, rows.weights);
  const double total = count_unmasked_rows(rows.targets, rows.weights);
  const auto chunk_loss = [&rows, &loss, total](const Tensor& chunk, const std::vector<Tensor>& parameters,
                                                int64_t first) {
    const int64_t last = first + chunk.size(0);
    const Tensor chunk_targets = view_rows(rows.targets, first, last);
    const Tensor chunk_weights = rows.weights.defined() ? view_rows(rows.weights, first, last) : Tensor{};
    const double share = total > 0 ? count_unmasked_rows(chunk_targets, chunk_weights) / total : 0;
    const Tensor bias = parameters.size() > 1 ? parameters[1] : Tensor{};
    return mul(loss(linear(chunk, parameters[0], bias), chunk_targets, chunk_weights), share);
  };
  const auto multiply = [](const Tensor& x, const Tensor& factor) { return mul(x, factor); };
  std::vector<Tensor> parameters = {predictor.weight};
  if (predictor.bias.defined()) parameters.push_back(predictor.bias);
  return sum_in_chunks(chunk_loss, rows.encoded, chunks, parameters, multiply);
}

}  // namespace tapeformer
