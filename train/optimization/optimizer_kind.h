// Kinds of optimizers. A kind has a name, options of its own and a method that updates the parameters.
// Clipping, the moving average of the weights and checkpoints are the same for all kinds
// (train/optimization/optimizer.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"
#include "core/tensor.h"
#include "ops/optimizer_step.h"

namespace tapeformer {

// The options of all kinds, and the options of the kind.
struct OptimizerConfig {
  std::string kind = "radam";
  double lr = 1e-4;
  double weight_decay = 0;
  double clip_norm = 0;         // maximum norm of the gradients; 0: no limit
  std::string clip = "global";  // global | per_tensor
  double ema = 0;               // decay of the moving average of the weights; 0: no average
  OptionValues options = {};    // options that are not set have the defaults of the kind
};

using NamedParameters = std::vector<std::pair<std::string, Tensor>>;

struct ParameterUpdate {
  size_t index;                // index of the parameter in the list that the method was made for
  Tensor parameter, gradient;  // `gradient` is contiguous
  bool decays = true;          // whether weight decay applies to the parameter
};

// Calls update_one() with each element of `updates`, whose gradient is multiplied as `clipping` says. Returns
// the norm of all gradients as apply_optimizer_step() does.
Tensor update_with_scaled_gradients(const std::vector<ParameterUpdate>& updates, const Clipping& clipping,
                                    const std::function<void(const ParameterUpdate&)>& update_one);

class UpdateMethod {
 public:
  UpdateMethod() = default;
  UpdateMethod(const UpdateMethod&) = delete;
  UpdateMethod& operator=(const UpdateMethod&) = delete;
  virtual ~UpdateMethod() = default;

  // Prepares a step with the learning rate `lr`. The first step has number 1. Returns the coefficients that
  // update() reads on the device. A method without such coefficients returns {}.
  virtual UpdateRule prepare_step(double lr, int64_t step) = 0;
  // Updates the parameters in place, with the gradients multiplied as `clipping` says. `rule` is the result
  // of prepare_step() in device memory. Returns the norm of all gradients as apply_optimizer_step() does. A
  // CUDA graph can contain the launches: values that differ between steps must be read on the device.
  virtual Tensor update(const std::vector<ParameterUpdate>& updates, const Tensor& rule,
                        const Clipping& clipping) = 0;
  // Returns the tensors that a checkpoint stores for a parameter, with the prefixes of their names.
  virtual std::vector<std::pair<std::string, Tensor>> state(size_t index) const = 0;
};

struct OptimizerKind {
  std::string name;
  std::string help;  // a one-line description
  std::vector<OptionSpec> options;
  // Returns the method for these parameters. `options` has a value for each option of the kind.
  std::function<std::unique_ptr<UpdateMethod>(const OptimizerConfig& config, const OptionValues& options,
                                              const NamedParameters& parameters)>
      make;
};

// See Registry in core/options/part.h.
void register_optimizer_kind(OptimizerKind kind);
const std::deque<OptimizerKind>& list_optimizer_kinds();
const OptimizerKind& find_optimizer_kind(const std::string& name);

// The built-in kinds.
// - radam: Liu et al. 2020, as in the experiments of "Transformers are RNNs". eps is added to the square root
//   of the uncorrected second moment. In steps with rho_t < 5, where rho_t is defined in Liu et al., the
//   update is SGD with momentum. Weight decay is decoupled.
// - adam: Kingma & Ba 2015, with L2 weight decay.
// - adamw: Loshchilov & Hutter 2019, with decoupled weight decay.
// - sgd: SGD with momentum and L2 weight decay.
OptimizerKind make_radam_kind();
OptimizerKind make_adam_kind();
OptimizerKind make_adamw_kind();
OptimizerKind make_sgd_kind();
OptimizerKind make_adafactor_kind();  // train/optimization/adafactor.cpp
OptimizerKind make_muon_kind();       // train/optimization/muon.cpp

}  // namespace tapeformer
