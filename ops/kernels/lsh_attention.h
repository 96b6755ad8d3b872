// LSH attention (Kitaev et al. 2020): hashing, and attention within chunks of the sorted sequence.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/rng.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/machines.h"

namespace tapeformer {

struct LshHashShape {
  int64_t batch = 0, length = 0, heads = 0, dim = 0, rounds = 0;
  int64_t buckets1 = 2, buckets2 = 1;  // bucket = argmax1 + buckets1 argmax2; even, or buckets2 = 1
  bool shared = false;                 // one rotation a round, for all examples and heads
  bool shared_examples = false;        // one rotation a round and head, for all examples
  const int64_t* lengths = nullptr;    // (batch,): positions from there on get bucket buckets1 buckets2
};

enum class LshWrap { none, round, global };

struct LshAttentionShape {
  int64_t batch = 0, length = 0, heads = 0, dim = 0, value_dim = 0, rounds = 0, chunk_length = 0;
  LshWrap wrap = LshWrap::none;
  bool exact_duplicates = false;     // weigh a key by one over the number of places where the query meets it
  bool across_buckets = false;       // see keys of other buckets
  bool causal = false;               // see no later position
  bool mean = false;                 // rounds weigh the same; else by their sums of exponentials
  double scale = 1;                  // of the scores
  double epsilon = 0;                // key = q / sqrt(|q|² + epsilon)
  const int64_t* lengths = nullptr;  // (batch,): positions from there on do not count

  int64_t counted(int64_t example) const { return lengths ? lengths[example] : length; }
  // Rows of log-sum-exps that forward keeps for backward: (batch, heads, log_sum_rounds(), length).
  TAPEFORMER_HOST_DEVICE int64_t log_sum_rounds() const { return mean ? rounds : 1; }
};

// Nanoseconds, summed over threads, in the stages of the attention kernels, and the multiply-adds of their
// products; for benchmarks. Counted while lsh_stages points to one, which one thread may set while no kernel
// runs.
struct LshStages {
  std::atomic<int64_t> hash{0}, sort{0}, gather{0}, products{0}, softmax{0}, scatter{0};
  std::atomic<int64_t> multiply_adds{0};
};
extern LshStages* lsh_stages;

TAPEFORMER_ON_BOTH_MACHINES(

    // buckets (batch, heads, rounds, length). Element e (row-major over (dim, columns)) of the rotation of a
    // round is number e mod 4 of block ((example 2¹² + head) 2⁸ + round) 2²⁴ + e / 4 of the stream; example
    // and head are 0 in shared ones.
    template <class T> void lsh_hash(const LshHashShape& shape, const RandomStream& stream,
                                     AttentionRows<const T> q, int32_t* buckets);

    // buckets (batch, heads, rounds, length), each in [0, length]; out (batch, length, heads, value_dim)
    // contiguous.
    template <class T>
    void lsh_attention_forward(const LshAttentionShape& shape, AttentionRows<const T> q,
                               AttentionRows<const T> v, const int32_t* buckets, T* out, T* log_sums);

    // From the gradient g of out: gq and gv, contiguous in the shapes of q and v.
    template <class T>
    void lsh_attention_backward(const LshAttentionShape& shape, AttentionRows<const T> q,
                                AttentionRows<const T> v, const int32_t* buckets, const T* out,
                                const T* log_sums, AttentionRows<const T> g, T* gq, T* gv);)

}  // namespace tapeformer
