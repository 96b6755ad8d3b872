// LSH attention (Kitaev et al. 2020): hashing, and attention within chunks of the sorted sequence.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dropout.h"
#include "core/rng.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// Numbers of buckets of one or two rotations: bucket = argmax1 + first * argmax2. Each number is even or 1.
struct LshFactors {
  int64_t first = 1, second = 1;
  TAPEFORMER_HOST_DEVICE int64_t total() const { return first * second; }
};

struct LshHashShape {
  // One rotation is used up to this number of buckets, and two rotations above it, as in trax.
  static constexpr int64_t kOneFactor = 128;

  int64_t batch = 0, length = 0, heads = 0, dim = 0, rounds = 0, chunk_length = 1;
  LshFactors requested;              // requested numbers of buckets; 1: derived from the length
  bool factorise = true;             // use two rotations for more than kOneFactor buckets
  LshFactors max_factors;            // maximum of each factor over all sequences
  bool shared = false;               // one rotation per round for all examples and heads
  bool shared_examples = false;      // one rotation per round and head for all examples
  int64_t first_example = 0;         // index of the first example in the random stream
  const int64_t* lengths = nullptr;  // (batch,): later positions are masked

  // Returns the number of buckets for a sequence of `valid` positions: two per chunk, but at most one per
  // position. The number is even and at least 2.
  TAPEFORMER_HOST_DEVICE int64_t even_buckets(int64_t valid) const {
    const int64_t wanted = valid / chunk_length * 2, allowed = valid / 2 * 2;
    const int64_t buckets = wanted < allowed ? wanted : allowed;
    return buckets < 2 ? 2 : buckets;
  }
  // Returns even_buckets(valid) as factors. Numbers above kOneFactor are split into a power of two and an
  // even number.
  TAPEFORMER_HOST_DEVICE LshFactors automatic(int64_t valid) const {
    const int64_t buckets = even_buckets(valid);
    if (buckets <= kOneFactor || !factorise) return {buckets, 1};
    int64_t first = 1;
    while (first * first < buckets) first *= 2;
    const int64_t second = buckets / first / 2 * 2;
    return {first, second < 2 ? 2 : second};
  }
  // Returns the number of buckets of a sequence of `valid` positions, independent of the other sequences of
  // the batch. A single chunk needs no buckets.
  TAPEFORMER_HOST_DEVICE LshFactors factors(int64_t valid) const {
    if (valid <= chunk_length) return {};
    return requested.total() > 1 && requested.total() <= valid ? requested : automatic(valid);
  }
};

// The chunk before the first chunk of a round, to which the first chunk also attends. `round` selects the
// last chunk of the same round, and `global` the last chunk of the previous round. The last round is the
// previous round of the first round.
enum class LshWrap { none, round, global };

struct LshAttentionShape {
  int64_t batch = 0, length = 0, heads = 0, dim = 0, value_dim = 0, rounds = 0, chunk_length = 0;
  LshWrap wrap = LshWrap::none;
  bool exact_duplicates = false;     // weight each occurrence of a key found n times by 1 / n
  bool across_buckets = false;       // attend to keys of other buckets
  bool causal = false;               // do not attend to later positions
  bool mean = false;                 // average the rounds; false: weight rounds by their sums of exponentials
  double scale = 1;                  // scale of the scores
  double epsilon = 0;                // key = q / sqrt(|q|² + epsilon)
  const int64_t* lengths = nullptr;  // (batch,): later positions are masked
  DropoutMask dropout = {};          // mask of the weights of a chunk, (chunk_length, 2 chunk_length)

  int64_t valid(int64_t example) const { return valid_length(lengths, example, length); }
  // Returns the number of rounds whose log-sum-exps are stored. The log-sum-exps are (batch, heads,
  // log_sum_rounds(), length).
  TAPEFORMER_HOST_DEVICE int64_t log_sum_rounds() const { return mean ? rounds : 1; }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes buckets (batch, heads, rounds, length). The bucket of a masked position is the number of
    // buckets of its sequence. With e = column * dim + d, element (d, column) of the rotation of a round is
    // number e mod 4 of block ((example * 2¹² + head) * 2⁸ + round) * 2²⁴ + e / 4 of the stream. The second
    // rotation begins 2²³ blocks later. A sequence with fewer buckets uses the first columns. Examples are
    // counted from first_example. If `shared` is true, `example` and `head` are 0. If `shared_examples` is
    // true, `example` is 0.
    template <class T> void lsh_hash(Backend, const LshHashShape& shape, const RandomStream& stream,
                                     AttentionRows<const T> q, int32_t* buckets);

    // Computes out (batch, length, heads, value_dim), contiguous, and log_sums (batch, heads,
    // log_sum_rounds(), length) from buckets (batch, heads, rounds, length), each in [0, length]. If a
    // position attends to no other position, its log-sum-exp is +inf and its result is its own value.
    template <class T> void lsh_attention_forward(Backend, const LshAttentionShape& shape,
                                                  AttentionRows<const T> q, AttentionRows<const T> v,
                                                  const int32_t* buckets, T* out, Compute<T>* log_sums);

    // Computes gq and gv, contiguous in the shapes of q and v, from the gradient g of out.
    template <class T>
    void lsh_attention_backward(Backend, const LshAttentionShape& shape, AttentionRows<const T> q,
                                AttentionRows<const T> v, const int32_t* buckets, const T* out,
                                const Compute<T>* log_sums, AttentionRows<const T> g, T* gq, T* gv);)

}  // namespace tapeformer
