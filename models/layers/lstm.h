// A stack of LSTM layers, with PyTorch's parameter names (weight_ih_l0, …, bias_hh_l2_reverse) and
// initialisation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layers/module.h"
#include "ops/lstm.h"

namespace tapeformer {

struct LstmOptions {
  int64_t input_width = 0, hidden = 320, layers = 3;
  bool bidirectional = true;
  double dropout = 0;  // dropout probability for the inputs of each layer except the first

  int64_t output_width() const { return (bidirectional ? 2 : 1) * hidden; }
};

class LstmStack final : public Module {
 public:
  // Throws OptionError if a size is not positive.
  explicit LstmStack(const LstmOptions& options);
  // Runs the LSTM on x (batch, frames, in). Returns (batch, frames, output_width), with zeros after the last
  // valid frame of each sequence. `lengths` (batch,) int64 contains the numbers of valid frames; if it is
  // undefined, all frames are valid.
  Tensor forward(const Tensor& x, const Tensor& lengths, const ForwardContext& context) const;

  const LstmOptions& options() const { return options_; }

  // The weights, indexed by layer and by direction (0: forward, 1: backward).
  std::vector<std::vector<LstmWeights>> layers;

 private:
  LstmOptions options_;
};

}  // namespace tapeformer
