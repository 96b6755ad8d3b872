// The base class of models and layers. A module owns named parameters, state, buffers and child modules.
//
// The full name of a parameter is its path through the modules, for example
// "layers.0.attention.query_projection.weight". The result of a forward pass depends only on its inputs, the
// parameters, the state and the ForwardContext.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/random/dropout.h"

namespace tapeformer {

// Discrete decisions of a forward pass, such as the buckets of LSH attention. If backward() replays the
// forward pass, rounding errors could change the decisions. The original pass therefore stores each decision
// under a name, and the replay reads the stored decision.
class StoredDecisions {
 public:
  // Returns the decision stored under `name`. If there is no such decision, stores and returns decide().
  Tensor get_or_decide(const std::string& name, const std::function<Tensor()>& decide);
  int64_t bytes() const;

 private:
  std::map<std::string, Tensor> decisions_;
};

struct AttentionRecord;  // models/encoder/encoder_layer.h
struct LayerState;       // models/attention/state.h
class LossTerms;         // models/layers/loss_terms.h
class SegmentMemory;     // models/layers/segment_memory.h

// Settings of a forward pass.
struct ForwardContext {
  bool training = false;         // true in training; otherwise, dropout and `step` are not used
  bool disable_dropout = false;  // disables dropout in training
  // If true, attention kinds with a minimum sequence length must also accept shorter sequences. Generation
  // sets this member, because it runs the model on the tokens generated so far.
  bool is_prefix = false;
  uint64_t seed = 0;  // seed of dropout and other random numbers
  uint64_t step = 0;  // optimizer step; passes with equal seed and step draw equal random numbers
  // If the forward pass processes a slice of a batch, `first_example` is the index of the first example of
  // the slice in the batch. An example of the slice then draws the same random numbers as in a pass of the
  // whole batch, if both passes pad the sequences to the same length.
  int64_t first_example = 0;
  // Memory of the earlier segments of the sequences, or null. The object must outlive backward(), because
  // backward() can replay the forward pass.
  SegmentMemory* memory = nullptr;
  LossTerms* loss_terms = nullptr;  // collects terms that layers add to the loss, or null
  // Receives one record for each layer of self-attention, in their order, or null.
  std::vector<AttentionRecord>* attention_records = nullptr;
  // The states after the tokens before the inputs, or null. The pass then continues the sequences and updates
  // the states. It must not be recorded.
  const std::map<std::string, LayerState>* states = nullptr;
  // Decisions that replays of the forward pass must repeat, or null if the pass is not replayed.
  StoredDecisions* decisions = nullptr;

  // Returns a mask that drops elements with probability p, or an empty mask if dropout is disabled. The mask
  // is drawn from the random stream `name`, which is the full name of a module followed by a suffix.
  DropoutMask make_dropout_mask(double p, const std::string& name) const {
    return training && !disable_dropout && p > 0 ? DropoutMask{p, RandomStream(seed, name, step)}
                                                 : DropoutMask{};
  }
};

// A ForwardContext for a part of a model that backward() replays. If the given context has no
// StoredDecisions, the constructor creates an empty StoredDecisions object. Copies of the ReplayContext share
// the new object.
class ReplayContext {
 public:
  // `replayed` says whether the layers that use the context run again in the backward pass. If it is false,
  // the constructor creates no StoredDecisions object.
  explicit ReplayContext(const ForwardContext& context, bool replayed = true);
  const ForwardContext& operator*() const { return context_; }

 private:
  ForwardContext context_;
  std::shared_ptr<StoredDecisions> owned_decisions_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
std::vector<Tensor> strip_names(const NamedTensors& named);

// A function that fills `parameter`, a float64 tensor, with initial values. Random values are drawn from
// `stream`, whose name is "init " followed by the full name of the parameter.
using Initializer = std::function<void(const Tensor& parameter, const RandomStream& stream)>;

Initializer make_uniform_initializer(double bound);  // U(-bound, bound)
Initializer make_normal_initializer(double std);     // N(0, std²)
Initializer make_constant_initializer(double value);

struct ParameterOptions {
  bool decays = true;  // whether the weight decay of optimizers applies to the parameter
};

class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // Returns the parameters of this module and its children in order of registration, without frozen
  // parameters. Parameters are leaves of the tape that require gradients.
  NamedTensors parameters() const;
  // Returns the parameters to which weight decay does not apply.
  NamedTensors undecayed_parameters() const;
  // Returns the parameters that freeze() has made constant.
  NamedTensors frozen_parameters() const;
  // Returns the parameters and the state, which checkpoints store.
  NamedTensors saved_tensors() const;
  // Returns the non-persistent buffers: tensors that are neither trained nor saved, such as sinusoidal
  // positions.
  NamedTensors buffers() const;
  // Returns the leaves of the tape in a forward pass of this module. The leaves are parameters(), and
  // parameters of other modules that this module or its children use through an alias. The list can contain
  // the same leaf more than once.
  std::vector<Tensor> leaves() const;
  // Returns the tensors that add_statistics() registered in this module and its children. The tensors contain
  // sums over the training forward passes since the last update_state().
  std::vector<Tensor> statistics() const;
  // Calls f for this module and its descendants, with the full name of each. The name of this module is
  // empty.
  void visit_modules(const std::function<void(const std::string& name, Module& module)>& f);
  // Makes the parameters and the state constant whose full name `selects` accepts. A frozen parameter
  // requires no gradient, so that ops whose inputs are all frozen are not recorded. If one state of a module
  // is frozen, update_state() changes no state of the module. Must be called on the root module, so that
  // aliases refer to the frozen tensors.
  void freeze(const std::function<bool(const std::string& name)>& selects);
  // Updates the state from the statistics and sets the statistics to 0. The trainer calls this function after
  // each step.
  void update_state() const;
  // Sets parameters and state to the values of their initializers. The values depend only on the seed and the
  // name of the tensor.
  void initialize(uint64_t seed) const;
  // Converts floating-point parameters, state, buffers and statistics to `dtype`. The results are new tensors
  // without gradients.
  void convert(DType dtype);
  // Moves parameters, state, buffers and statistics to `device`. The results are new tensors, so optimizers
  // must be created after the call.
  void move(Device device);

 protected:
  // Sets `tensor`, a member of the module, to a tensor of zeros that is a leaf of the tape, and registers the
  // tensor as a parameter. Constructors call this function.
  void add_parameter(std::string name, Tensor& tensor, const Shape& shape, Initializer initializer,
                     ParameterOptions options = {});
  // Sets `tensor` to zeros and registers the tensor as state. State is initialised and saved like a parameter
  // but not trained.
  void add_state(std::string name, Tensor& tensor, const Shape& shape, Initializer initializer);
  // Registers a buffer. convert() and move() replace buffers, but buffers are neither trained nor saved.
  void add_buffer(std::string name, Tensor& tensor);
  // Sets `sums` to float32 zeros and registers it as statistics. Forward passes in training add to `sums`
  // without recording on the tape. The results of forward passes must not depend on `sums`. update_state()
  // calls `update`, which computes new state from `sums`.
  void add_statistics(Tensor& sums, const Shape& shape, std::function<void()> update);
  // Stores parameters of equal dtype one after another in memory, so that concat() along the first dimension
  // returns a view instead of a copy. convert() and move() preserve this layout.
  void keep_adjacent(std::vector<Tensor*> parameters);
  // Makes `alias` refer to the parameter `tensor` of another module. convert() and move() preserve the alias
  // if they are called on a module that contains both modules.
  void add_alias(Tensor& alias, const Tensor& tensor);
  // Registers a child module. The names of the tensors of the child get the prefix `name` and a period, or no
  // prefix if `name` is empty.
  void add_child(std::string name, Module& child) { children_.emplace_back(std::move(name), &child); }
  void remove_child(const Module& child);

 private:
  struct RegisteredTensor {
    std::string name;
    Tensor* tensor;
    Initializer initializer;  // empty for buffers
    bool is_parameter;
    ParameterOptions options = {};
    bool is_frozen = false;
  };
  struct Statistics {
    Tensor* sums;
    std::function<void()> update;
  };
  void visit_tensors(const std::string& prefix,
                     const std::function<void(const std::string&, const RegisteredTensor&)>& f) const;
  NamedTensors select_tensors(const std::function<bool(const RegisteredTensor&)>& condition) const;
  void visit_modules(const std::string& prefix,
                     const std::function<void(const std::string& name, Module& module)>& f);
  void freeze_tensors(const std::string& prefix, const std::function<bool(const std::string& name)>& selects);
  bool has_frozen_state() const;
  void append_aliased_leaves(std::vector<Tensor>& leaves) const;
  void replace_tensors(const std::function<Tensor(const Tensor&)>& replacement);
  void replace_statistics(const std::function<Tensor(const Tensor&)>& replacement);
  void update_aliases();
  void make_parameters_adjacent() const;

  std::vector<RegisteredTensor> registered_tensors_;
  std::vector<Statistics> statistics_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::pair<Tensor*, const Tensor*>> aliases_;  // (alias, parameter)
  std::vector<std::vector<Tensor*>> adjacent_groups_;       // arguments of the calls of keep_adjacent()
};

// Limits the total number of elements in the parameters and the state of the models that a thread constructs.
// The limit applies while the ParameterLimitScope exists. Constructing a larger model throws
// ParameterLimitError. Without the limit, a config that does not match its checkpoint could exhaust the
// memory. ParameterLimitScope objects must not be nested.
class ParameterLimitScope {
 public:
  explicit ParameterLimitScope(int64_t elements);
  ~ParameterLimitScope();
  ParameterLimitScope(const ParameterLimitScope&) = delete;
  ParameterLimitScope& operator=(const ParameterLimitScope&) = delete;

  // Subtracts the number of elements of a new parameter from the limit. If the limit is exceeded, throws
  // ParameterLimitError before the parameter is allocated. If no limit exists, does nothing.
  static void subtract(const std::string& name, const Shape& shape);
};

// Thrown if a model has more parameters and state than a ParameterLimitScope allows.
class ParameterLimitError : public std::length_error {
 public:
  using std::length_error::length_error;
};

// Returns the number of elements of the parameters, including frozen parameters.
int64_t count_parameters(const Module& module);

}  // namespace tapeformer
