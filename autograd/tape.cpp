#include "autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "autograd/complete.h"

namespace tapeformer {

constexpr int64_t kNone = -1;

// Destination of the gradient of an input: a node, a leaf, or none.
struct tape::Edge {
  int64_t node = kNone;
  Tensor leaf;
  Shape shape;
  DType dtype{};

  bool wanted() const { return node != kNone || leaf.defined(); }
};

bool NeededGradients::operator[](int input) const {
  return inputs_[input].wanted();
}

namespace {

using tape::Edge;

// Computes target += value. Reuses the memory of `target` or `value` if no other tensor shares this memory.
void accumulate(Tensor& target, Tensor value) {
  auto exclusive = [](const Tensor& t) {
    return t.use_count() == 1 && t.owns_storage_alone() && t.is_contiguous();
  };
  if (!target.defined()) {
    target = std::move(value);
  } else if (exclusive(target)) {
    target.add_scaled(value);
  } else if (exclusive(value)) {
    value.add_scaled(target);
    target = std::move(value);
  } else {
    Tensor sum = target.clone();
    sum.add_scaled(value);
    target = std::move(sum);
  }
}

struct Node {
  const char* op = "";
  GradientFunction gradient_function;
  std::vector<Edge> inputs;
  Tensor gradient;  // gradient of the result; defined only during backward()
  // Number of references to the node. The result and each use of the result by a later node count as one
  // reference. During backward(), `gradient` counts as one reference until the node has run.
  int32_t reference_count = 0;
  bool freed = false;  // true after clear(), for example if backward() ran without retain_tape
};

// The nodes that one thread, the owner of the tape, has recorded. While the owner runs, only the owner
// accesses the nodes: if another thread destroys a recorded tensor, it puts the id of the node into a queue,
// and the owner releases the node later. After the owner has ended, mutex_ guards the nodes. The owner and
// each recorded tensor share the ownership of the Tape object.
class Tape {
 public:
  // The lowest id of the nodes that the innermost backward pass may run. A backward pass inside a gradient
  // function, as in recompute(), must not run the nodes of the outer backward pass.
  int64_t floor = 0;

  int64_t push_node(Node node) {
    nodes_.push_back(std::move(node));
    return end() - 1;
  }
  Node& operator[](int64_t id) { return nodes_[static_cast<size_t>(id - base_)]; }
  int64_t begin() const { return base_; }
  int64_t end() const { return base_ + static_cast<int64_t>(nodes_.size()); }
  int64_t alive() const {
    return std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.reference_count > 0; });
  }

  void retain(int64_t id) { ++(*this)[id].reference_count; }

  // Releases one reference to a node. Clears nodes without references in a loop instead of recursively, so
  // that a deep graph does not overflow the stack.
  void release(int64_t id) {
    if (--(*this)[id].reference_count > 0) return;
    waiting_.push_back(id);
    if (draining_) return;
    draining_ = true;
    while (!waiting_.empty()) {
      const int64_t next = waiting_.back();
      waiting_.pop_back();
      clear((*this)[next]);
    }
    draining_ = false;
    while (!nodes_.empty() && nodes_.back().reference_count == 0) nodes_.pop_back();
    while (!nodes_.empty() && nodes_.front().reference_count == 0) {
      nodes_.pop_front();
      ++base_;
    }
  }

  // Adds `gradient` to the gradient of a node. The first call for a node also adds a reference to the node,
  // which run_backward() releases after it has run the node.
  void deliver(int64_t id, Tensor gradient) {
    if (!(*this)[id].gradient.defined()) retain(id);
    accumulate((*this)[id].gradient, std::move(gradient));
  }

  // Frees the gradient function and the inputs of a node. The node itself remains on the tape.
  void clear(Node& node) {
    const GradientFunction function = std::move(node.gradient_function);
    const std::vector<Edge> inputs = std::move(node.inputs);
    node.inputs.clear();
    node.freed = true;
    for (const Edge& edge : inputs)
      if (edge.node != kNone) release(edge.node);
  }

  // Releases one reference to a node. Called on threads that do not own the tape.
  void release_from_other_thread(int64_t id) {
    const std::lock_guard lock(mutex_);
    if (owner_has_ended_) return release(id);
    queued_releases_.push_back(id);
    has_queued_releases_.store(true, std::memory_order_relaxed);
  }
  // Releases the nodes in the queue. Called on the thread that owns the tape.
  void collect() {
    if (!has_queued_releases_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    has_queued_releases_.store(false, std::memory_order_relaxed);
    for (const int64_t id : std::exchange(queued_releases_, {})) release(id);
  }
  // Must be called when the thread that owns the tape ends.
  void end_ownership() {
    const std::lock_guard lock(mutex_);
    collect();
    owner_has_ended_ = true;
  }

 private:
  std::deque<Node> nodes_;
  int64_t base_ = 0;  // id of nodes_.front()
  std::vector<int64_t> waiting_;
  bool draining_ = false;

  std::atomic<bool> has_queued_releases_{false};
  // Guards the members below. The mutex is recursive, because release() can destroy other recorded tensors.
  std::recursive_mutex mutex_;
  std::vector<int64_t> queued_releases_;
  bool owner_has_ended_ = false;
};

thread_local const Tape* current_tape = nullptr;  // null before the thread's first recorded op

struct TapeOfThread {
  TapeOfThread() { current_tape = tape.get(); }
  ~TapeOfThread() {
    current_tape = nullptr;
    tape->end_ownership();
  }
  const std::shared_ptr<Tape> tape = std::make_shared<Tape>();
};

const std::shared_ptr<Tape>& get_thread_tape() {
  thread_local TapeOfThread owner;
  return owner.tape;
}

thread_local bool recording_enabled = true;

// The attachment of a tensor that requires a gradient. For a leaf, the attachment contains the accumulated
// gradient. For the result of a recorded op, it contains the id of the node.
class TapeEntry final : public TensorAttachment {
 public:
  TapeEntry() = default;
  TapeEntry(std::shared_ptr<Tape> tape, int64_t id) : node(id), tape_(std::move(tape)) { tape_->retain(id); }
  ~TapeEntry() override {
    if (node == kNone) return;
    if (tape_.get() == current_tape)
      tape_->release(node);
    else
      tape_->release_from_other_thread(node);
  }
  bool is_leaf() const { return node == kNone; }
  bool usable_here() const { return is_leaf() || tape_.get() == current_tape; }
  void check_can_copy(const char* method) const override {
    check(!recording_enabled, method,
          "the tensor requires a gradient, which the result would lose; call reshape, contiguous or cast "
          "(ops/view.h), or detach the tensor first");
  }

  const int64_t node = kNone;
  Tensor leaf_gradient;

 private:
  std::shared_ptr<Tape> tape_;
};

TapeEntry* find_tape_entry(const Tensor& tensor) {
  return tensor.defined() ? static_cast<TapeEntry*>(tensor.attachment()) : nullptr;
}

void check_gradient(const char* op, size_t input, const Edge& edge, const Tensor& gradient) {
  check(gradient.shape() == edge.shape && gradient.dtype() == edge.dtype, op, "gradient of input ", input,
        " has shape ", gradient.shape(), " ", name_of(gradient.dtype()), ", expected ", edge.shape, " ",
        name_of(edge.dtype));
}

constexpr const char* kRetainAdvice =
    "; run the forward pass again, or pass {.retain_tape = true} to the earlier call to keep them";

// Calls the gradient function of a node and adds its results to the gradients of the inputs.
void backward_node(Tape& tape, int64_t id, bool retain_tape) {
  const char* const op = tape[id].op;
  check(!tape[id].freed, "backward", "an earlier backward() freed the recorded op ", op, kRetainAdvice);
  const size_t inputs = tape[id].inputs.size();
  const NeededGradients needs(tape[id].inputs.data(), retain_tape);
  Gradients gradients = tape[id].gradient_function(std::exchange(tape[id].gradient, {}), needs);
  check(gradients.size() == inputs, op, "returned ", gradients.size(), " gradients for ", inputs, " inputs");
  for (size_t i = 0; i < inputs; ++i) {
    const Edge& edge = tape[id].inputs[i];
    if (!gradients[i].defined() || !edge.wanted()) continue;
    check_gradient(op, i, edge, gradients[i]);
    if (edge.node != kNone)
      tape.deliver(edge.node, std::move(gradients[i]));
    else
      accumulate(find_tape_entry(edge.leaf)->leaf_gradient, std::move(gradients[i]));
  }
  if (!retain_tape) tape.clear(tape[id]);
}

// A leaf, and the first recorded node that uses the leaf. backward() reaches this node after all other nodes
// that use the leaf.
struct FirstUse {
  int64_t node;
  Tensor leaf;
};

// Returns the leaves that are inputs of the nodes from tape.floor to `last`, in order of first use.
std::vector<FirstUse> first_uses(Tape& tape, int64_t last) {
  std::vector<FirstUse> uses;
  std::unordered_set<const TapeEntry*> seen;
  for (int64_t id = std::max(tape.floor, tape.begin()); id <= last; ++id)
    for (const Edge& edge : tape[id].inputs)
      if (edge.leaf.defined() && seen.insert(find_tape_entry(edge.leaf)).second)
        uses.push_back({id, edge.leaf});
  return uses;
}

// The leaves whose gradients a backward pass has not completed.
class IncompleteLeaves {
 public:
  IncompleteLeaves(std::vector<FirstUse> uses, const BackwardOptions& options)
      : uses_(std::move(uses)), options_(options) {}

  // Calls on_complete for the leaves that no node before `node` uses. Must be called when backward() has only
  // nodes before `node` left to run, because the gradients of the reported leaves must be complete.
  void complete_from(int64_t node) {
    for (; !uses_.empty() && uses_.back().node >= node; uses_.pop_back())
      options_.on_complete(uses_.back().leaf);
  }
  // Calls on_complete for a leaf if `node` is the first node that uses the leaf. `node` must be the running
  // node.
  void complete(int64_t node, const Tensor& leaf) {
    for (auto use = uses_.end(); use != uses_.begin() && (--use)->node == node;) {
      if (find_tape_entry(use->leaf) != find_tape_entry(leaf)) continue;
      options_.on_complete(leaf);
      uses_.erase(use);
      return;
    }
  }

 private:
  std::vector<FirstUse> uses_;  // in order of first use
  const BackwardOptions& options_;
};

// The incomplete leaves of the innermost backward() that runs on this thread, or null outside of backward().
thread_local IncompleteLeaves* incomplete_leaves = nullptr;

// Runs backward from node `last` down to node tape.floor. If a gradient function throws, clears all pending
// gradients and rethrows the exception.
void run_backward(Tape& tape, int64_t last, const BackwardOptions& options) {
  const int64_t floor = tape.floor;
  std::exception_ptr failure;
  IncompleteLeaves leaves(options.on_complete ? first_uses(tape, last) : std::vector<FirstUse>(), options);
  IncompleteLeaves* const outer = std::exchange(incomplete_leaves, &leaves);
  for (int64_t id = last; id >= std::max(floor, tape.begin()); --id) {
    if (id >= tape.end() || !tape[id].gradient.defined()) continue;
    try {
      tape.floor = id + 1;
      if (!failure) backward_node(tape, id, options.retain_tape);
      if (!failure) leaves.complete_from(id);
    } catch (...) {
      failure = std::current_exception();
    }
    tape[id].gradient = {};
    tape.release(id);
  }
  tape.floor = floor;
  incomplete_leaves = outer;
  if (failure) std::rethrow_exception(failure);
  leaves.complete_from(floor);
}

}  // namespace

bool is_recording() {
  return recording_enabled;
}

RecordingScope::RecordingScope(bool enabled) : previous_(recording_enabled) {
  recording_enabled = enabled;
}
RecordingScope::~RecordingScope() {
  recording_enabled = previous_;
}

bool requires_grad(const Tensor& tensor) {
  return find_tape_entry(tensor) != nullptr;
}

bool is_leaf(const Tensor& tensor) {
  const TapeEntry* const entry = find_tape_entry(tensor);
  return !entry || entry->is_leaf();
}

const Tensor& set_requires_grad(const Tensor& tensor) {
  check(is_floating(tensor.dtype()), "set_requires_grad", "needs a floating dtype, not ",
        name_of(tensor.dtype()));
  if (!requires_grad(tensor)) tensor.attach(std::make_unique<TapeEntry>());
  return tensor;
}

Tensor gradient(const Tensor& leaf) {
  const TapeEntry* const entry = find_tape_entry(leaf);
  return entry ? entry->leaf_gradient : Tensor{};
}

void set_gradient(const Tensor& leaf, const Tensor& value) {
  TapeEntry* const entry = find_tape_entry(leaf);
  check(entry && entry->is_leaf(), "set_gradient", "the tensor is not a leaf that requires a gradient");
  entry->leaf_gradient = value;
}

int64_t tape_size() {
  get_thread_tape()->collect();
  return get_thread_tape()->alive();
}

void backward(const Tensor& result, const Tensor& cotangent, const BackwardOptions& options) {
  check_defined("backward", "the result", result);
  TapeEntry* const entry = find_tape_entry(result);
  check(entry != nullptr, "backward", "the result does not depend on any tensor that requires a gradient");
  check(entry->usable_here(), "backward", "the result was recorded on the tape of another thread");
  check(cotangent.defined() || result.numel() == 1, "backward", "a result of shape ", result.shape(),
        " needs a cotangent of that shape");
  check(!cotangent.defined() || (cotangent.shape() == result.shape() && cotangent.dtype() == result.dtype()),
        "backward", "cotangent of shape ", cotangent.defined() ? cotangent.shape() : Shape{},
        " does not match the result's ", result.shape(), " ", name_of(result.dtype()));
  Tensor seed = cotangent.defined() ? cotangent.alias()
                                    : Tensor::full(result.shape(), 1, result.dtype(), result.device());
  const NoGradScope no_grad;
  if (entry->is_leaf()) {
    accumulate(entry->leaf_gradient, std::move(seed));
    if (options.on_complete) options.on_complete(result);
    return;
  }
  Tape& tape = *get_thread_tape();
  check(!tape[entry->node].freed, "backward", "an earlier backward() freed the recorded ops of this result",
        kRetainAdvice);
  tape.deliver(entry->node, std::move(seed));
  run_backward(tape, entry->node, options);
}

namespace tape {

void report_gradient_complete(const Tensor& leaf) {
  // run_backward() sets `floor` to the id of the running node + 1.
  const int64_t running = get_thread_tape()->floor - 1;
  if (incomplete_leaves) incomplete_leaves->complete(running, leaf);
}

bool should_record(std::span<const Tensor* const> inputs) {
  return recording_enabled &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor* input) { return requires_grad(*input); });
}

void push_node(const char* op, const Tensor& result, std::span<const Tensor* const> inputs,
               GradientFunction gradient) {
  check(!requires_grad(result), op, "the result is already on the tape");
  for (const Tensor* input : inputs) {
    const TapeEntry* const entry = find_tape_entry(*input);
    check(!entry || entry->usable_here(), op,
          "an input was recorded on the tape of another thread; detach it, or run the op on that thread");
  }
  Tape& tape = *get_thread_tape();
  tape.collect();
  Node node;
  node.op = op;
  node.gradient_function = std::move(gradient);
  node.inputs.reserve(inputs.size());
  for (const Tensor* input : inputs) {
    Edge& edge = node.inputs.emplace_back();
    const TapeEntry* const entry = find_tape_entry(*input);
    if (!entry) continue;
    edge.shape = input->shape();
    edge.dtype = input->dtype();
    edge.node = entry->node;
    if (entry->is_leaf())
      edge.leaf = *input;
    else
      tape.retain(entry->node);
  }
  result.attach(std::make_unique<TapeEntry>(get_thread_tape(), tape.push_node(std::move(node))));
}

}  // namespace tape

}  // namespace tapeformer
