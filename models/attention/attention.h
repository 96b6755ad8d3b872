// Attention kinds: what turns queries, keys and values into results. A kind is registered by name with its
// typed parameters and capabilities; configs name it by string, and models know this interface only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/options.h"
#include "models/module.h"

namespace tapeformer {

struct AttentionCapabilities {
  bool causal = false;
  bool length_masks = false;
  bool cross_lengths = false;      // queries and keys of different lengths
  bool recurrent = false;          // has a state and a step for decoding
  std::string no_recurrence = {};  // reason for `recurrent` = false, a clause for messages
  bool constant_state = false;     // the state has a fixed size and takes any number of tokens
  bool weight_dropout = false;     // drops attention weights in training
  bool shared_query_key = false;   // keys are the queries: the layer has no key projection
};

struct AttentionMask {
  bool causal = true;
  Tensor key_lengths;  // (batch,) int64, or undefined: all keys count
};

// What a recurrent kind remembers of the past of every sequence of a batch.
class AttentionState {
 public:
  AttentionState() = default;
  AttentionState(const AttentionState&) = delete;
  AttentionState& operator=(const AttentionState&) = delete;
  virtual ~AttentionState() = default;
  // Forgets everything; keeps the memory.
  virtual void reset() = 0;
  virtual int64_t bytes() const = 0;
};

struct StateShape {
  int64_t batch, heads, dim, value_dim;
  int64_t capacity;  // longest sequence
  DType dtype;
  Device device;
};

class Attention {
 public:
  Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  virtual ~Attention() = default;

  // q (batch, q_length, heads, dim), k (batch, k_length, heads, dim), v (batch, k_length, heads, value_dim);
  // result (batch, q_length, heads, value_dim). `place` names the layer for random draws.
  virtual Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                         const ForwardContext& context, const std::string& place) const = 0;

  // Decoding, for recurrent kinds only. One token: q, k (batch, heads, dim), v and out (batch, heads,
  // value_dim).
  virtual std::unique_ptr<AttentionState> make_state(const StateShape& shape) const;
  virtual void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
                    const Tensor& out) const;
};

struct AttentionKind {
  std::string name;
  std::string help;
  AttentionCapabilities capabilities;
  std::vector<OptionSpec> options;  // keys of the config's [attention] table
  // `dropout` is the probability with which attention weights are dropped; kinds without weights ignore it.
  std::function<std::unique_ptr<Attention>(const OptionValues& options, double dropout)> make;
  // Throws ConfigError for options that do not suit sequences of this length; may be empty.
  std::function<void(const OptionValues& options, int64_t length)> check_length = nullptr;
  // Returns the floating-point operations of the forward pass of one head of width `dim` on one causal
  // sequence, for benchmarks: scores, weighted sums and state updates, without hashing. May be empty.
  std::function<double(const OptionValues& options, int64_t length, int64_t dim)> flops = nullptr;
};

// Every kind, in the order in which help lists them.
const std::vector<AttentionKind>& attention_kinds();
// Throws ConfigError with a "did you mean" for an unknown name.
const AttentionKind& attention_kind(const std::string& name);

// The kinds, one function a file.
AttentionKind linear_attention_kind();
AttentionKind lsh_attention_kind();
AttentionKind softmax_attention_kind();

}  // namespace tapeformer
