// The batches of a training.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"

namespace tapeformer {

// The part of a batch that this process computes. In a run with one process, the slice is the whole batch.
struct BatchSlice {
  int64_t first_example = 0, example_count = 0;  // range of the examples in the batch
  // Numbers of items (predictions, utterances or labels) over which the loss is averaged. loss_divisor is the
  // number of items in the slice, and batch_loss_divisor is the number in the whole batch.
  double loss_divisor = 0, batch_loss_divisor = 0;
};

// Returns the range [first, second) of `count` examples that process `rank` of `size` computes.
std::pair<int64_t, int64_t> compute_slice_range(int64_t count, int rank, int size);

// This process's slice of one batch.
struct StepBatch {
  int64_t number = 0;  // counted from the start of training
  BatchSlice slice = {};
  Batch examples = {};
  // Number of tokens that precede the batch in a text stream. It is the same for all streams of the batch.
  int64_t preceding_token_count = 0;
};

// The shapes of the tensors of a batch. A captured CUDA graph can be replayed for each batch of the same
// layout.
struct BatchLayout {
  std::vector<int64_t> token_shape, mask_shape;  // `mask_shape` is empty if there is no mask
  int64_t memory_token_count = 0;  // number of tokens that the model reads from its segment memory
  auto operator<=>(const BatchLayout&) const = default;
};

// The source of the batches of a training. A batch depends only on the config and the batch number, so a
// checkpoint contains no position in the data: a resumed run continues with the next number.
class BatchSource {
 public:
  BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;
  virtual ~BatchSource() = default;

  virtual int64_t count_examples() const = 0;
  virtual double count_batches(double epochs) const = 0;
  // Returns the number of complete epochs among the first `batches` batches.
  virtual int64_t count_complete_epochs(int64_t batches) const = 0;
  // Returns a batch. Loads the batches that follow in another thread, so calls with consecutive numbers are
  // fast.
  virtual StepBatch next(int64_t number) = 0;
  // Returns the indices or ids of the examples of a batch as text, for error messages.
  virtual std::string describe_examples(int64_t number) const = 0;
  // Returns Dataset::compute_digest() of the data.
  virtual std::string compute_digest() const = 0;
};

}  // namespace tapeformer
