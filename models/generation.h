// Generation of sequences by an autoregressive model.
#pragma once

#include <memory>
#include <vector>

#include "models/autoregressive_model.h"
#include "models/decoder.h"
#include "ops/class_sampling.h"
#include "ops/logistic_mixture.h"

namespace tapeformer {

enum class GenerationMode {
  recurrent,  // one step of the recurrent form per token; requires a recurrent attention kind
  recompute   // a forward pass over the whole prefix per token; works with every causal attention kind
};

struct GenerationOptions {
  GenerationMode mode = GenerationMode::recurrent;
  uint64_t seed = 0;
  // Index of the first sequence of `prefix` in a larger batch. If a batch is split over several calls of
  // generate(), this index selects the random numbers that one call with the whole batch would use.
  int64_t first_sequence_index = 0;
  ClassSamplingOptions sampling = {};
  // Scale of the logistic distributions from which the bytes of images are sampled. Used only if all options
  // in `sampling` have their default values.
  SamplingScale logistic_scale = SamplingScale::elu;
  std::vector<int64_t> undrawn_tokens = {};  // are never drawn, in ascending order
  // Of the weights in recurrent mode. Prefixes are read with the weights of the model, so round them first.
  WeightFormat weights = WeightFormat::operand;
  bool use_cuda_graphs = true;  // replays a captured step in recurrent mode on CUDA devices
};

// Extends `prefix`, (batch, prefix length) uint8, to sequences of `length` tokens. Returns the sequences,
// (batch, length) uint8 on the CPU. The random numbers for token t + 1 of sequence s depend only on the seed,
// s and t, where s counts from options.first_sequence_index. Throws ShapeError if the prefix is empty or
// longer than `length`, if `length` exceeds max_length + 1 of the model, or if the vocabulary has more than
// 256 tokens. Throws DivergenceError if logits are not finite.
Tensor generate(const AutoregressiveModel& model, const Tensor& prefix, int64_t length,
                const GenerationOptions& options);

// A sampler draws tokens from the distributions that a model predicts. It also checks that the logits are
// finite.
class Sampler {
 public:
  Sampler(const AutoregressiveModelOptions& model, const GenerationOptions& options, Device device);

  // Draws token t + 1 of every sequence into tokens (batch,) from parameters (batch, outputs).
  void draw(const Tensor& parameters, int64_t t, const Tensor& tokens) const;
  // Throws DivergenceError if draw() was called with logits that are not finite.
  void check_logits() const;
  // Returns whether draw() allocates no memory. Only then can draw() be captured in a CUDA graph.
  bool is_allocation_free() const;

 private:
  OutputHead head_;
  GenerationOptions options_;
  RandomStream stream_;
  // Sum of the squared logits in the latest call of draw(), and the sum over all calls. check_logits() checks
  // the sum over all calls, which is finite only if all logits are finite.
  Tensor squared_logit_sum_, total_squared_logit_sum_;
};

// Returns the default `window` of a TokenStream: max_length of a model whose number of tokens is not limited
// by positions or a segment memory, and otherwise 0.
int64_t get_default_window(const AutoregressiveModel& model);

// Sequences that grow by one token at a time. The model predicts each token from a window of at most `window`
// earlier tokens. When the window is full, its older half is removed, and the model reads the newer half
// again from position 0. For a given window, the memory and the average time per token do not depend on the
// length of the sequences. Both generation modes use the same windows. In recurrent mode, tokens that were
// appended are read in the parallel form.
class TokenStream {
 public:
  // The sequences can have at most `capacity` + 1 tokens. If `window` is 0, the window is the whole sequence.
  // The model must outlive the stream. Throws ShapeError if the window exceeds position_limit() of the
  // model in recurrent mode, or max_length in recompute mode.
  TokenStream(const AutoregressiveModel& model, const GenerationOptions& options, int64_t batch,
              int64_t capacity, int64_t window = 0);

  // Appends the token to every sequence. Throws ShapeError if the token is not in the vocabulary, or if the
  // sequences already have `capacity` + 1 tokens.
  void append(int64_t token);
  // Draws the next token of each sequence, appends and returns it. Throws ShapeError if the sequences are
  // empty or already have `capacity` + 1 tokens. Throws DivergenceError if the logits are not finite.
  std::vector<int64_t> draw();
  // Reads the appended tokens, except the last one, now and not in the next call of draw().
  void read();
  int64_t size() const { return size_; }
  int64_t state_bytes() const { return decoder_ ? decoder_->state_bytes() : 0; }

 private:
  void check_capacity() const;
  // Increments size() and appends one token of each sequence to the window. If the window then has more than
  // `window_` tokens, removes the older half.
  void append_to_window(const std::vector<int64_t>& tokens);
  int64_t count_window_tokens() const { return static_cast<int64_t>(window_tokens_.size()) / batch_; }
  // Returns tokens [first, last) of the window, (batch, last - first).
  Tensor make_window(int64_t first, int64_t last) const;
  // Returns the parameters of the distributions of the next tokens, (batch, outputs).
  Tensor compute_distributions();

  const AutoregressiveModel& model_;
  Sampler sampler_;
  int64_t batch_, capacity_, window_, size_ = 0;
  Tensor newest_tokens_;              // (batch,), the last tokens, which the decoder has not read
  std::unique_ptr<Decoder> decoder_;  // used in recurrent mode
  // The tokens of the window, the first token of every sequence first. In recurrent mode, if the window is
  // the whole sequence, only the tokens that the decoder has not read.
  std::vector<int64_t> window_tokens_;
  int64_t unread_count_ = 0;   // number of tokens of a sequence that the decoder has not read
  bool must_restart_ = false;  // whether the decoder must read the window again
};

}  // namespace tapeformer
