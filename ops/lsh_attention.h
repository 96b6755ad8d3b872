// LSH attention (Kitaev, Kaiser and Levskaya 2020, "Reformer", section 2): queries are their own keys; a
// random hash sorts positions into buckets, the sorted sequence is cut into chunks, and a query sees its own
// chunk and the one before it. Several rounds of hashing are combined. Implementations of it differ; each
// difference is an option here, with the names of those who do it:
//   paper    the published equations, and trax of 2019 with allow_duplicate_attention = False
//   trax     trax's LSHSelfAttention of 2020, which Hugging Face's modeling_reformer follows
//   lucid    the PyPI package reformer-pytorch
//   fast     fast_transformers, the baseline of "Transformers are RNNs"
#pragma once

#include <string>

#include "autograd/tape.h"
#include "core/rng.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer {

struct LshOptions {
  // What the first chunk looks back at: nothing (paper, fast), the last chunk of its own round, or the last
  // chunk of the round before, the first round at that of the last (trax, lucid).
  using Wrap = LshWrap;
  // A key that a query meets in several places counts once per place (trax, lucid, fast), or once in all
  // (paper, equation 16).
  enum class Duplicates { none, exact };
  // k = q / |q| and scores q . k (paper, trax), or q . k / sqrt(dim) (lucid, fast).
  enum class Scale { unit_key, rsqrt_dim };
  // Rounds weigh by their sums of exponentials, so that together they are one softmax (paper, trax, lucid),
  // or all the same (fast).
  enum class Combine { logsumexp, mean };
  // bucket = argmax [x R, -x R] with a Gaussian R of its own for every example, head and round, in two
  // factors when there are more than 128 buckets (paper, trax), or one R a round, shared by all and never
  // factorised (fast, whose name for its columns, hyperplanes, it has).
  enum class Hash { rotations, hyperplanes };

  int64_t rounds = 4;         // of hashing, 1 to 255
  int64_t chunk_length = 64;  // positions; a length of at most this is exact attention, without hashing
  // Even; 0: 2 length / chunk_length (paper, equation in section 4), at least 2. The length is that of each
  // sequence, without its padding. A sequence with fewer positions than a given number gets as many as with
  // 0.
  int64_t buckets = 0;
  Wrap wrap = Wrap::none;
  Duplicates duplicates = Duplicates::exact;
  bool across_buckets = false;  // a chunk's positions of other buckets are seen too (trax, lucid, fast)
  Scale scale = Scale::unit_key;
  Combine combine = Combine::logsumexp;
  Hash hash = Hash::rotations;
  bool share_rotations = false;  // all examples of a batch are hashed alike; heads and rounds are not
  bool any_length = false;  // sequences with fewer positions than `buckets`, or of one chunk, are no error
  bool causal = false;      // a query sees its own position and those before
  Tensor key_lengths = {};  // (batch,) int64 in [0, length]: positions from there on are neither keys nor
                            // queries; undefined: all count
};

// Options by name: "reformer" (the paper; the defaults above), "trax", "fast_transformers" (the lsh-1 and
// lsh-4 of "Transformers are RNNs": 64 buckets, chunks of 32). Errors: ConfigError.
LshOptions lsh_preset(const std::string& name);

// The number of buckets that the options mean at a length; 1 where no hashing is needed. Errors: ShapeError.
int64_t lsh_bucket_count(const LshOptions& options, int64_t length);

// q (batch, length, heads, dim), float32 or float64, on a device also bfloat16; result (batch, heads, rounds,
// length) int32, in [0, lsh_bucket_count(length of the sequence)]: the upper end is the bucket of positions
// that do not count. Ties go to the lowest bucket. Not recorded: buckets have no gradient. The rotations of
// round r are the same whatever the number of rounds. Errors: ShapeError for odd or too many buckets, no
// rounds, and shapes that do not fit.
Tensor lsh_buckets(const Tensor& q, const LshOptions& options, const RandomStream& stream);

// q (batch, length, heads, dim), v (batch, length, heads, value_dim), both float32 or float64, on a device
// also bfloat16, and the buckets of lsh_buckets with the same options; result (batch, length, heads,
// value_dim), contiguous.
//
// Positions sort by (bucket, position) in each round. A query never sees its own position unless it sees no
// other one: in no round with Combine::logsumexp, in this round with Combine::mean. Keys are
// q / sqrt(|q|² + 1e-6 dim), as in trax; |q|² must be a finite number. Positions beyond key_lengths get zeros
// and give no gradient. The gradient holds the buckets fixed; it sorts again and works the scores out again,
// so that memory grows with length x rounds. Results do not depend on the number of threads. Errors:
// ShapeError.
Tensor lsh_attention(const Tensor& q, const Tensor& v, const Tensor& buckets, const LshOptions& options);

}  // namespace tapeformer
