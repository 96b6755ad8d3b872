// Optimizers over the parameters of a model, with clipping of gradients and, if asked for, an exponential
// moving average of the weights. The optimizer owns its moments and the average; parameters stay the model's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "train/config/config.h"

namespace tapeformer {

class Optimizer {
 public:
  using Named = std::vector<std::pair<std::string, Tensor>>;

  Optimizer(const OptimizerConfig& config, Named parameters);

  // Updates every parameter that has a gradient and drops the gradients. `gradient_scale` multiplies them
  // first (for accumulation). Returns the norm of all gradients together before clipping, as a scalar
  // on their device that nothing has waited for.
  //   radam: Liu et al. 2020 in the form of the experiments of "Transformers are RNNs": eps beside the root
  //   of the
  //          uncorrected second moment; momentum SGD while rho_t < 5; decoupled weight decay in both branches
  //   adam:  Kingma & Ba 2015, weight decay as L2;  adamw: Loshchilov & Hutter 2019;  sgd: with momentum,
  //   decay as L2
  // Clipping multiplies gradients by min(1, clip_norm / (norm + 1e-6)), for all together or tensor by tensor.
  Tensor step(double lr, double gradient_scale = 1);
  // Its two parts: what changes from step to step is written where the second finds it, which can be recorded
  // as a graph.
  void prepare(double lr);
  Tensor apply(double gradient_scale = 1);
  int64_t steps() const { return steps_; }

  // Exchanges the weights with their average (a second call changes them back); nothing without an average.
  void swap_average();
  bool has_average() const { return !averages_.empty(); }

  // Everything that a resumed run needs besides the parameters: "first.NAME", "second.NAME", "average.NAME".
  // The tensors are the optimizer's own; loading writes into them.
  Named state() const;
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  OptimizerConfig config_;
  Named parameters_;
  std::vector<Tensor> first_, second_, averages_;
  Tensor rule_;  // of the step, where the parameters are
  int64_t steps_ = 0;
};

}  // namespace tapeformer
