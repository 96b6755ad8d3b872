// The mean loss of the predictions of a linear layer, computed in chunks of rows.
#pragma once

#include <functional>

#include "models/layers/layers.h"

namespace tapeformer {

// Rows that a predictor reads, and what it must predict.
struct PredictorRows {
  Tensor encoded;       // (rows, predictor inputs)
  Tensor targets;       // (rows, …), for example tokens
  Tensor weights = {};  // (rows,) uint8: 0 excludes a row from the loss; undefined: all rows count
};

// A function that returns the mean loss of outputs (rows, predictor outputs) over the rows that count.
using MeanLoss = std::function<Tensor(const Tensor& outputs, const Tensor& targets, const Tensor& weights)>;

// Returns the mean loss over the rows that count. Only the outputs of one chunk are in memory at a time.
Tensor compute_predictor_loss(const Linear& predictor, const PredictorRows& rows, int64_t chunks,
                              const MeanLoss& loss);

}  // namespace tapeformer
