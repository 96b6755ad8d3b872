// The tape of recorded ops, on which backward() computes gradients in reverse order.
//
// Each thread has a separate tape, a sequence of nodes in creation order. A node contains the gradient
// function of an op. The node is freed when no tensor and no later node refers to it, so a discarded forward
// pass uses no memory. Deep graphs do not overflow the stack, because backward() is not recursive.
//
// A recorded tensor belongs to the tape of the thread that recorded it. record() and backward() throw
// ShapeError for a tensor recorded on another thread. Any thread may use a leaf, but two threads must not
// use the same leaf at the same time. Any thread may destroy a recorded tensor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

// Gradients with respect to the inputs of an op, in the order of the inputs. An undefined tensor means zero.
using Gradients = std::vector<Tensor>;

namespace tape {
struct Edge;
}

// Tells which inputs of an op need a gradient: needs[i] is true if input i needs one. If needs[i] is false, a
// gradient function may return an undefined gradient for input i. The object is valid only during the call of
// the gradient function.
class NeededGradients {
 public:
  NeededGradients(const tape::Edge* inputs, bool is_tape_retained)
      : inputs_(inputs), is_tape_retained_(is_tape_retained) {}
  bool operator[](int input) const;
  // Returns whether backward() keeps the gradient function for another call (BackwardOptions::retain_tape).
  bool is_tape_retained() const { return is_tape_retained_; }

 private:
  const tape::Edge* inputs_;  // one edge per input
  bool is_tape_retained_;
};

// A move-only wrapper of a function that maps the gradient of the result of an op to the gradients of the
// inputs. The arguments of the function are the gradient and, optionally, a NeededGradients object.
class GradientFunction {
 public:
  GradientFunction() = default;
  template <class F>
  explicit GradientFunction(F&& f) : call_(std::make_unique<Holder<std::decay_t<F>>>(std::forward<F>(f))) {}
  explicit operator bool() const { return static_cast<bool>(call_); }
  // Calls the stored function. If the function takes `gradient` by value, it owns the tensor and can release
  // the memory before it returns.
  Gradients operator()(Tensor gradient, NeededGradients needs) const {
    return call_->run(std::move(gradient), needs);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual Gradients run(Tensor gradient, NeededGradients needs) = 0;
  };
  template <class F>
  struct Holder final : Base {
    explicit Holder(F f) : function(std::move(f)) {}
    Gradients run(Tensor gradient, NeededGradients needs) override {
      if constexpr (std::is_invocable_v<F, Tensor, NeededGradients>)
        return function(std::move(gradient), needs);
      else
        return function(std::move(gradient));
    }
    F function;
  };
  std::unique_ptr<Base> call_;
};

// Returns true if ops on this thread are recorded. Recording is enabled by default.
bool is_recording();
// Enables or disables recording on this thread until the object is destroyed.
class RecordingScope {
 public:
  explicit RecordingScope(bool enabled);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool previous_;
};
// A scope in which this thread records no ops.
class NoGradScope : public RecordingScope {
 public:
  NoGradScope() : RecordingScope(false) {}
};

// Returns true for leaves that require a gradient, and for recorded results.
bool requires_grad(const Tensor& tensor);
// Returns false for recorded results, and true for all other tensors.
bool is_leaf(const Tensor& tensor);
// Makes the tensor a leaf whose gradient backward() accumulates. Returns the tensor. Throws ShapeError if
// its dtype is not a floating dtype.
const Tensor& set_requires_grad(const Tensor& tensor);
// Returns the accumulated gradient of a leaf. The gradient is undefined before the first backward().
Tensor gradient(const Tensor& leaf);
// Replaces the accumulated gradient of a leaf. If `value` is undefined, clears the gradient. Throws
// ShapeError if the tensor is not a leaf that requires a gradient.
void set_gradient(const Tensor& leaf, const Tensor& value);
// Returns a tensor that shares the data and is not recorded on the tape.
inline Tensor detach(const Tensor& tensor) {
  return tensor.alias();
}

struct BackwardOptions {
  bool retain_tape = false;  // keep the tape for another backward()
  // Called once for each leaf that the recorded ops use, after backward() has added the last term to the
  // gradient of the leaf. This includes leaves on which the result does not depend. The order of the calls
  // depends only on the recorded ops. `on_complete` must not call backward().
  std::function<void(const Tensor& leaf)> on_complete = {};
};
// Adds d(sum(result * cotangent)) / d(leaf) to the gradient of every leaf. If no cotangent is given, the
// result must have one element. Throws ShapeError if the result is undefined, does not require a gradient,
// or was recorded on another thread. Also throws ShapeError if an earlier backward() freed the recorded
// ops, or if the cotangent and the result differ in shape or dtype.
void backward(const Tensor& result, const Tensor& cotangent = {}, const BackwardOptions& options = {});

// Returns the number of nodes on the tape of this thread, for tests and leak checks.
int64_t tape_size();

namespace tape {

bool should_record(std::span<const Tensor* const> inputs);
// Adds a node for `result` to the tape of this thread.
void push_node(const char* op, const Tensor& result, std::span<const Tensor* const> inputs,
               GradientFunction gradient);

}  // namespace tape

// Records `result` as the output of an op and returns it. `gradient` maps the gradient of the result to the
// gradients of the inputs, which must have the shapes and dtypes of the inputs. backward() calls `gradient`
// after record() has returned, so `gradient` must capture by value. It should capture only the tensors that
// it needs, because the tape keeps these tensors alive.
template <class F>
Tensor record(const char* op, Tensor result, std::initializer_list<const Tensor*> inputs, F&& gradient) {
  const std::span<const Tensor* const> span(inputs.begin(), inputs.size());
  if (tape::should_record(span))
    tape::push_node(op, result, span, GradientFunction(std::forward<F>(gradient)));
  return result;
}
template <class F>
Tensor record(const char* op, Tensor result, const std::vector<Tensor>& inputs, F&& gradient) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  if (tape::should_record(pointers))
    tape::push_node(op, result, pointers, GradientFunction(std::forward<F>(gradient)));
  return result;
}

}  // namespace tapeformer
