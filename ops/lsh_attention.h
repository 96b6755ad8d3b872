// LSH attention (Kitaev, Kaiser and Levskaya 2020, "Reformer", section 2). Queries also serve as keys. A
// random hash sorts positions into buckets, and the sorted sequence is cut into chunks. A query attends to
// its own chunk and the chunk before it. Several rounds of hashing are combined. Where implementations
// differ, an option selects the behaviour. The options name these implementations:
//   paper    the published equations, and trax of 2019 with allow_duplicate_attention = False
//   trax     trax's LSHSelfAttention of 2020, which Hugging Face's modeling_reformer follows
//   lucid    the PyPI package reformer-pytorch
//   fast     fast_transformers, the baseline of "Transformers are RNNs"
#pragma once

#include <string>

#include "autograd/tape.h"
#include "core/random/rng.h"
#include "ops/attention_result.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer {

// The comment of this file defines the names paper, trax, lucid and fast.
struct LshOptions {
  // Selects the chunk before the first chunk of a round. `none` selects no chunk (paper, fast). `round`
  // selects the last chunk of the same round. `global` selects the last chunk of the previous round, or for
  // the first round, the last chunk of the last round (trax, lucid).
  using Wrap = LshWrap;
  // The weight of a key that a query finds in n rounds. With `none`, each of the n occurrences has the
  // weight 1 (trax, lucid, fast). With `exact`, each occurrence has the weight 1 / n (paper, equation 16).
  // Combine::mean ignores this option.
  enum class Duplicates { none, exact };
  // The score of a query q and a key k. The key is the query vector at the position of the key, divided by
  // the norm of this vector. With unit_key, the score is q . k (paper, trax). With rsqrt_dim, this score is
  // also divided by sqrt(dim) (lucid, fast).
  enum class Scale { unit_key, rsqrt_dim };
  // The weights of the rounds in the result. With `logsumexp`, the weight of a round is the sum of exp(score)
  // over its keys, so that all rounds form one softmax (paper, trax, lucid). With `mean`, all rounds have
  // equal weights (fast).
  enum class Combine { logsumexp, mean };
  // The random matrices R of the hash, which assigns a vector x to the bucket argmax [x R, -x R]. With
  // `rotations`, each example, head and round has a separate matrix, and more than 128 buckets require two
  // matrices (paper, trax). With `hyperplanes`, all examples and heads share one matrix per round (fast).
  enum class Hash { rotations, hyperplanes };

  int64_t rounds = 4;  // number of hashing rounds, 1 to 255
  // Number of positions per chunk. Sequences up to this length use exact attention without hashing.
  int64_t chunk_length = 64;
  // The number of buckets, which must be even. If 0, a sequence with n valid positions has 2 n / chunk_length
  // buckets (paper, equation in section 4), but at least 2. The same rule applies to a sequence with fewer
  // valid positions than `buckets`.
  int64_t buckets = 0;
  Wrap wrap = Wrap::none;
  Duplicates duplicates = Duplicates::exact;
  // If false, a query attends only to keys in the bucket of the query, as in the paper. If true, the query
  // also attends to keys in other buckets, as in public implementations. For both values of across_buckets, a
  // query attends only to keys in the chunk of the query or in the previous chunk.
  bool across_buckets = false;
  Scale scale = Scale::unit_key;
  Combine combine = Combine::logsumexp;
  Hash hash = Hash::rotations;
  bool share_rotations = false;  // if true, all examples use the same rotations
  int64_t first_example = 0;     // example b uses the rotations of example first_example + b
  // If false and `buckets` is not 0, a nonempty sequence must have at least `buckets` positions and more than
  // chunk_length positions. Shorter sequences cause a ShapeError. If true, all lengths are allowed.
  bool allow_any_length = false;
  bool causal = false;  // if true, queries do not attend to later positions
  // Valid lengths, (batch,) int64 in [0, length]. Later positions are masked. If undefined, no position is
  // masked.
  Tensor key_lengths = {};
  // Probability of setting an attention weight to zero. All chunks, rounds, heads and examples use the same
  // dropout mask, as in trax. The dropout mask has the shape (chunk_length, 2 * chunk_length). The first
  // chunk_length columns of the mask are for keys of the previous chunk, and the other columns are for keys
  // of the same chunk.
  double dropout = 0;
  RandomStream dropout_stream = {};
};

// Returns the options of a preset: "reformer" (the defaults above), "trax", or "fast_transformers" (the
// experiments of "Transformers are RNNs", with 64 buckets and chunks of 32). Throws ConfigError for other
// names.
LshOptions make_lsh_preset(const std::string& name);

// Returns the number of buckets for sequences of `length` positions, or 1 if no hashing is needed. Throws
// ShapeError for invalid options. If `buckets` is not 0 and allow_any_length is false, also throws
// ShapeError for a positive `length` that is less than `buckets` or at most chunk_length.
int64_t count_lsh_buckets(const LshOptions& options, int64_t length);

// Returns the buckets of q (batch, length, heads, dim), which is float32, float64 or bfloat16. The result is
// an int32 tensor (batch, heads, rounds, length). If a sequence has n buckets, the buckets of its positions
// are in [0, n), and the bucket of its masked positions is n. In a tie, the lowest bucket is selected. The
// call is not recorded, because buckets have no gradient. The rotations of round r do not depend on the
// number of rounds. Throws ShapeError if the number of buckets is odd or too large, if `rounds` is not in
// [1, 255], and for mismatched shapes.
Tensor compute_lsh_buckets(const Tensor& q, const LshOptions& options, const RandomStream& stream);

// Returns LSH attention of q (batch, length, heads, dim) and v (batch, length, heads, value_dim), which are
// both float32, float64 or bfloat16. `buckets` is the result of compute_lsh_buckets() with the same options.
// The result is a contiguous tensor (batch, length, heads, value_dim).
//
// Positions are sorted by (bucket, position) in each round. A query attends to its own position only if it
// attends to no other position. Combine::logsumexp applies this rule to all rounds together, and
// Combine::mean applies it to each round separately. Keys are q / sqrt(|q|² + 1e-6 dim), as in trax, and |q|²
// must be finite. Positions beyond key_lengths have zero results and zero gradients.
//
// The gradient treats the buckets as constants. The backward pass sorts again and recomputes the scores, so
// memory grows with length x rounds. Results do not depend on the number of threads. Throws ShapeError for
// invalid options and for mismatched shapes, dtypes and devices.
Tensor lsh_attention(const Tensor& q, const Tensor& v, const Tensor& buckets, const LshOptions& options);

// The passes of lsh_attention(); see ops/attention_result.h. The gradients of q and v are the elements of
// `gradients`.
void lsh_attention_forward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                const LshOptions& options, const AttentionResult& result);
void lsh_attention_backward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                 const LshOptions& options, const AttentionResult& result,
                                 const Tensor& gradient, const Gradients& gradients);

}  // namespace tapeformer
