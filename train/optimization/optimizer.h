// Optimizers with gradient clipping and an optional exponential moving average of the weights. The optimizer
// owns the moments and the average. The model owns the parameters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/rounded_weights.h"
#include "train/optimization/optimizer_kind.h"

namespace tapeformer {

class Optimizer {
 public:
  // Weight decay does not apply to the parameters in `undecayed`, such as Module::undecayed_parameters().
  // round_weights() also rounds the weights in `frozen`, which the optimizer does not update.
  // Throws ConfigError for an unknown kind, and std::invalid_argument for an option that the kind does not
  // have.
  Optimizer(const OptimizerConfig& config, NamedParameters parameters, const NamedParameters& undecayed = {},
            const NamedParameters& frozen = {});

  // Updates each parameter that has a gradient, removes the gradients, and updates the moving averages of the
  // weights. Multiplies the gradients by `gradient_scale` and then clips the gradients:
  // - If clip_norm > 0, multiplies each gradient by min(1, clip_norm / (norm + 1e-6)). If
  //   clip is "global", `norm` is the norm of all gradients together. If clip is
  //   "per_tensor", `norm` is the norm of the gradient of one parameter.
  // Some kinds also limit each element of the gradients (clip_value).
  // Returns the norm of all gradients after the multiplication by `gradient_scale` and before clipping. The
  // result is a float64 scalar on the device of the parameters. Does not wait for the device.
  Tensor step(double lr, double gradient_scale = 1);
  // Increments step_count() and copies the coefficients of the update rule to the device. step() calls
  // prepare_step() and then update_parameters().
  void prepare_step(double lr);
  // Updates the parameters and returns the norm of the gradients, as described for step(). prepare_step()
  // must be called before each call of update_parameters(). A CUDA graph can contain the launches of
  // update_parameters(), because the coefficients are read on the device. In this case, prepare_step() must
  // be called before each replay of the graph.
  Tensor update_parameters(double gradient_scale = 1);
  int64_t step_count() const { return step_count_; }

  // Rounds the current weights to bfloat16 for matrix products and returns the rounded copies; see
  // RoundedWeights. Forward and backward passes within a RoundedWeights::Scope use the copies. After the
  // weights change, round_weights() must be called again before the next pass.
  const RoundedWeights& round_weights() const;

  // Exchanges the weights with their moving averages. A second call restores the weights. Does nothing if
  // optimizer.ema is 0.
  void swap_averaged_weights();
  // Sets the moving averages to the weights.
  void reset_averages();
  bool has_average() const { return !averages_.empty(); }

  // Returns the tensors for a checkpoint. The name of each tensor is a prefix followed by the name of the
  // parameter, for example "first.NAME" for a first moment and "average.NAME" for a moving average.
  // The tensors share storage with the optimizer, so that a checkpoint can be loaded into them.
  NamedParameters state() const;
  void set_step_count(int64_t steps) { step_count_ = steps; }

 private:
  OptimizerConfig config_;
  NamedParameters parameters_;
  std::vector<bool> decays_;  // per parameter: whether weight decay applies
  std::unique_ptr<UpdateMethod> method_;
  std::vector<Tensor> averages_;
  RoundedWeights rounded_weights_;
  // Coefficients of the update rule in the current step, such as the learning rate, on the device of the
  // parameters.
  Tensor coefficients_;
  int64_t step_count_ = 0;
};

}  // namespace tapeformer
