// Kernels of LSH attention (Kitaev et al. 2020, "Reformer"): one kernel assigns positions to buckets, and two
// kernels compute attention within chunks of the positions sorted by bucket. ops/lsh_attention.h describes
// the method.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/random/dropout.h"
#include "core/random/rng.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// The numbers of buckets of a hash with at most two rotations. With two rotations, both numbers are even. A
// position with bucket b1 in the first rotation and bucket b2 in the second rotation has the bucket
// b1 + first * b2. With one rotation, `first` is even and `second` is 1. Without hashing, both numbers are 1.
struct LshBucketCounts {
  int64_t first = 1, second = 1;
  TAPEFORMER_HOST_DEVICE int64_t total() const { return first * second; }
};

struct LshHashShape {
  // Maximum number of buckets for which hashing uses only one rotation, as in trax.
  static constexpr int64_t kMaxSingleRotationBuckets = 128;

  int64_t batch = 0, length = 0, heads = 0, dim = 0, rounds = 0, chunk_length = 1;
  // Numbers of buckets that the caller sets. If requested_buckets.total() is 1 or exceeds the valid length,
  // compute_default_bucket_counts() determines the numbers of buckets.
  LshBucketCounts requested_buckets;
  bool allow_two_rotations = true;  // false: hashing always uses one rotation
  LshBucketCounts max_buckets;      // upper bounds of the bucket counts of all sequences
  // If true, all examples and heads share the rotations of a round.
  bool share_all_rotations = false;
  // If true, all examples share the rotations of a round and head.
  bool share_rotations_across_examples = false;
  int64_t first_example = 0;         // example b uses the rotations of example first_example + b
  const int64_t* lengths = nullptr;  // valid lengths (batch,); null if no position is masked

  // Returns the total number of buckets for a sequence of `valid` positions if no number is requested: two
  // buckets per chunk, but at most one bucket per position. The number is even and at least 2.
  TAPEFORMER_HOST_DEVICE int64_t compute_default_bucket_total(int64_t valid) const {
    const int64_t wanted = valid / chunk_length * 2, allowed = valid / 2 * 2;
    const int64_t total = wanted < allowed ? wanted : allowed;
    return total < 2 ? 2 : total;
  }
  // Returns the numbers of buckets per rotation for a sequence of `valid` positions. With two rotations, the
  // first number is a power of two, and the product of the two numbers may be smaller than
  // compute_default_bucket_total(valid).
  TAPEFORMER_HOST_DEVICE LshBucketCounts compute_default_bucket_counts(int64_t valid) const {
    const int64_t total = compute_default_bucket_total(valid);
    if (total <= kMaxSingleRotationBuckets || !allow_two_rotations) return {total, 1};
    int64_t first = 1;
    while (first * first < total) first *= 2;
    const int64_t second = total / first / 2 * 2;
    return {first, second < 2 ? 2 : second};
  }
  // Returns the numbers of buckets for a sequence of `valid` positions. The numbers do not depend on other
  // sequences of the batch. A sequence of one chunk needs no buckets.
  TAPEFORMER_HOST_DEVICE LshBucketCounts compute_bucket_counts(int64_t valid) const {
    if (valid <= chunk_length) return {};
    return requested_buckets.total() > 1 && requested_buckets.total() <= valid
               ? requested_buckets
               : compute_default_bucket_counts(valid);
  }
};

// Each query also attends to the chunk before its own chunk. LshWrap selects the chunk before the first chunk
// of a round: no chunk (`none`), the last chunk of the same round (`round`), or the last chunk of the
// previous round (`global`). For the first round, `global` selects the last chunk of the last round.
enum class LshWrap { none, round, global };

struct LshAttentionShape {
  int64_t batch = 0, length = 0, heads = 0, dim = 0, value_dim = 0, rounds = 0, chunk_length = 0;
  LshWrap wrap = LshWrap::none;
  // If true, and if a query attends to the same key n times in all rounds, the weight of each occurrence of
  // the key is divided by n.
  bool normalize_duplicates = false;
  bool across_buckets = false;  // true: queries also attend to keys of other buckets
  bool causal = false;          // true: queries do not attend to later positions
  // If true, the result is the mean over the rounds. If false, the weight of a round is proportional to the
  // sum of exp(score) over the keys of the round.
  bool average_rounds = false;
  double scale = 1;                  // multiplier of the scores
  double epsilon = 0;                // key = q / sqrt(|q|² + epsilon)
  const int64_t* lengths = nullptr;  // valid lengths (batch,); null if no position is masked
  // Dropout of the attention weights. All chunks, rounds, heads and examples use the same mask of shape
  // (chunk_length, 2 chunk_length): one row per query of a chunk, and one column per key of the previous
  // chunk and of the same chunk.
  DropoutMask dropout = {};

  // Returns the valid length of an example. `lengths` must be in host memory.
  int64_t valid_length(int64_t example) const { return get_valid_length(lengths, example, length); }
  // Returns the number of log-sum-exps that are stored per position and head.
  TAPEFORMER_HOST_DEVICE int64_t log_sum_round_count() const { return average_rounds ? rounds : 1; }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes buckets (batch, heads, rounds, length). If a sequence has n buckets, the bucket of its masked
    // positions is n.
    //
    // Both backends use the same rotation matrices (dim, buckets / 2) of normal random numbers. The matrix of
    // an example, head and round begins at the block
    //   ((example * 2¹² + head) * 2⁸ + round) * 2²⁴
    // of the random stream. The matrix of the second rotation begins 2²³ blocks later. A block contains four
    // numbers, and the matrix is in column-major order.
    //
    // `example` is the index in the batch plus first_example. If share_rotations_across_examples is true,
    // `example` is 0. If share_all_rotations is true, `example` and `head` are 0. A sequence with fewer
    // buckets than max_buckets uses only the first columns of the matrix.
    template <class T> void lsh_hash(Backend, const LshHashShape& shape, const RandomStream& stream,
                                     AttentionRows<const T> q, int32_t* buckets);

    // Computes the contiguous array out (batch, length, heads, value_dim). Also computes log_sums (batch,
    // heads, log_sum_round_count(), length), the log-sum-exps of the scores. The elements of buckets (batch,
    // heads, rounds, length) must be in [0, length]. If a position attends to no other position, its
    // log-sum-exp is +inf, and its result is the row of v at the position.
    template <class T> void lsh_attention_forward(Backend, const LshAttentionShape& shape,
                                                  AttentionRows<const T> q, AttentionRows<const T> v,
                                                  const int32_t* buckets, T* out, Compute<T>* log_sums);

    // Computes gq and gv, the gradients of q and v, from the gradient g of out. gq and gv are contiguous.
    template <class T>
    void lsh_attention_backward(Backend, const LshAttentionShape& shape, AttentionRows<const T> q,
                                AttentionRows<const T> v, const int32_t* buckets, const T* out,
                                const Compute<T>* log_sums, AttentionRows<const T> g, T* gq, T* gv);)

}  // namespace tapeformer
