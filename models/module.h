// Module: a part of a model that owns named parameters and buffers and other modules.
//
// Modules are built once, registered with their parents by name, and stay where they are (no copies, no
// moves). The full name of a parameter is the path to it: "layers.0.attention.query_projection.weight".
// Forward passes are pure functions of their inputs, the parameters and a ForwardContext.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/dropout.h"

namespace tapeformer {

// Choices of a forward pass that a replay must take again although its inputs differ by rounding: the buckets
// of LSH attention. Kept by place in the model; the first pass writes, a replay reads.
class Decisions {
 public:
  // The choice made at a place, or the result of `decide`, which is then kept.
  Tensor at(const std::string& place, const std::function<Tensor()>& decide);
  int64_t bytes() const;

 private:
  std::map<std::string, Tensor> kept_;
};

// What a forward pass depends on besides its inputs.
struct ForwardContext {
  bool training = false;           // enables dropout; random draws change with `step`
  bool dropout_off = false;        // disables dropout in training
  bool prefix = false;             // sequences are the beginnings of longer ones, as in generation
  uint64_t seed = 0;               // of dropout and other random draws
  uint64_t step = 0;               // which draw: a replay with the same step repeats it
  Decisions* decisions = nullptr;  // of a pass that will be replayed; null: decide afresh

  // The mask of a place in the model, given by its full name.
  DropoutMask dropout(double p, const std::string& place) const {
    return training && !dropout_off && p > 0 ? DropoutMask{p, RandomStream(seed, place, step)}
                                             : DropoutMask{};
  }
};

// A context for a part that is replayed: it keeps decisions for the replay, those of the given context if
// that has any. Copies share them; functions that are replayed hold a copy.
class ReplayContext {
 public:
  // `replayed` false: the part runs once, and nothing is kept.
  explicit ReplayContext(const ForwardContext& context, bool replayed = true);
  const ForwardContext& operator*() const { return context_; }

 private:
  ForwardContext context_;
  std::shared_ptr<Decisions> own_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
std::vector<Tensor> tensors_of(const NamedTensors& named);
// Fills a new float64 parameter from a stream that belongs to its full name.
using Initializer = std::function<void(const Tensor& parameter, const RandomStream& stream)>;

Initializer uniform_init(double bound);  // U(-bound, bound)
Initializer normal_init(double std);     // N(0, std²)
Initializer constant_init(double value);

class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // Every parameter of this module and its children, in order of registration, as leaves that require
  // gradients.
  NamedTensors parameters() const;
  // Tensors that belong to the model but are neither trained nor saved (sinusoidal positions).
  NamedTensors buffers() const;
  // Sets every parameter from its initialiser; the values depend on the seed and the parameter's name only.
  void initialize(uint64_t seed) const;
  // Converts floating-point parameters and buffers. The results are new tensors without gradients.
  void convert(DType dtype);
  // Moves parameters and buffers; optimizers are made afterwards.
  void move(Device device);

 protected:
  // Members register themselves in the constructor; `tensor` is a member that lives as long as the module.
  void add_parameter(std::string name, Tensor& tensor, const Shape& shape, Initializer initializer);
  void add_buffer(std::string name, Tensor& tensor);
  // A child without a name puts its parameters among those of the parent.
  void add_child(std::string name, Module& child) { children_.emplace_back(std::move(name), &child); }

 private:
  struct Entry {
    std::string name;
    Tensor* tensor;
    Initializer initializer;  // none: a buffer
  };
  void visit(const std::string& prefix, const std::function<void(const std::string&, const Entry&)>& f) const;
  void replace_tensors(const std::function<Tensor(const Tensor&)>& replacement);

  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, Module*>> children_;
};

// Number of trainable numbers.
int64_t parameter_count(const Module& module);

}  // namespace tapeformer
