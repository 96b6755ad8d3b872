// The base class of models that predict one result for each example of a batch, such as a class or a number.
#pragma once

#include <string>
#include <vector>

#include "core/batch.h"
#include "models/layers/module.h"

namespace tapeformer {

class ExampleModel : public Module {
 public:
  // Returns the mean of the loss over the examples of the batch, a scalar.
  virtual Tensor compute_loss(const Batch& batch, const ForwardContext& context) const = 0;
  // Returns the names of the scores of an evaluation. The first score is the loss.
  virtual std::vector<std::string> score_names() const = 0;
  // Returns the mean of each score over the examples of the batch, in the order of score_names(). Only
  // attention kinds with has_random_evaluation use `seed`.
  virtual std::vector<double> compute_scores(const Batch& batch, uint64_t seed = 0) const = 0;
};

// Returns the mean of the valid rows of each sequence, (batch, width). x is (batch, length, width). `lengths`
// (batch,) int64 contains the number of valid rows of each sequence. If `lengths` is undefined, all rows are
// valid. The mean is 0 for a sequence without valid rows. Copies `lengths` to the CPU.
Tensor average_valid_rows(const Tensor& x, const Tensor& lengths);

}  // namespace tapeformer
