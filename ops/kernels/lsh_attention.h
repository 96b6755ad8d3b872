// LSH attention (Kitaev et al. 2020): hashing, and attention within chunks of the sorted sequence.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/backends.h"
#include "core/rng.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// Buckets by one rotation or by two: bucket = argmax1 + first argmax2. Each is even, or 1.
struct LshFactors {
  int64_t first = 1, second = 1;
  TAPEFORMER_HOST_DEVICE int64_t total() const { return first * second; }
};

struct LshHashShape {
  // One rotation up to this many buckets, two factors beyond (trax).
  static constexpr int64_t kOneFactor = 128;

  int64_t batch = 0, length = 0, heads = 0, dim = 0, rounds = 0, chunk_length = 1;
  LshFactors given;                  // a chosen number of buckets; 1: as many as follow from the length
  bool factorise = true;             // more than kOneFactor buckets in two factors
  LshFactors most;                   // no sequence has more of either
  bool shared = false;               // one rotation a round, for all examples and heads
  bool shared_examples = false;      // one rotation a round and head, for all examples
  const int64_t* lengths = nullptr;  // (batch,): positions from there on do not count

  // Twice as many buckets as chunks, but no more than positions.
  TAPEFORMER_HOST_DEVICE int64_t even_buckets(int64_t counted) const {
    const int64_t wanted = counted / chunk_length * 2, allowed = counted / 2 * 2;
    const int64_t buckets = wanted < allowed ? wanted : allowed;
    return buckets < 2 ? 2 : buckets;
  }
  // As many as even_buckets; many of them as a power of two times an even number.
  TAPEFORMER_HOST_DEVICE LshFactors automatic(int64_t counted) const {
    const int64_t buckets = even_buckets(counted);
    if (buckets <= kOneFactor || !factorise) return {buckets, 1};
    int64_t first = 1;
    while (first * first < buckets) first *= 2;
    const int64_t second = buckets / first / 2 * 2;
    return {first, second < 2 ? 2 : second};
  }
  // The buckets of a sequence of so many positions that count, whatever else is in its batch. One chunk needs
  // none.
  TAPEFORMER_HOST_DEVICE LshFactors factors(int64_t counted) const {
    if (counted <= chunk_length) return {};
    return given.total() > 1 && given.total() <= counted ? given : automatic(counted);
  }
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

TAPEFORMER_FOR_EACH_BACKEND(

    // buckets (batch, heads, rounds, length); those of positions that do not count are the number of buckets
    // of their sequence. Element (d, column) of a rotation of a round is number e mod 4 of block ((example
    // 2¹² + head) 2⁸ + round) 2²⁴ + e / 4 of the stream, e = column dim + d, and that of the second factor
    // lies 2²³ blocks behind: fewer buckets take the first columns of many. example and head are 0 in shared
    // ones.
    template <class T> void lsh_hash(Backend, const LshHashShape& shape, const RandomStream& stream,
                                     AttentionRows<const T> q, int32_t* buckets);

    // buckets (batch, heads, rounds, length), each in [0, length]; out (batch, length, heads, value_dim)
    // contiguous; log_sums (batch, heads, log_sum_rounds(), length), +inf of a position that sees no other
    // and gives its own value.
    template <class T> void lsh_attention_forward(Backend, const LshAttentionShape& shape,
                                                  AttentionRows<const T> q, AttentionRows<const T> v,
                                                  const int32_t* buckets, T* out, Compute<T>* log_sums);

    // From the gradient g of out: gq and gv, contiguous in the shapes of q and v.
    template <class T>
    void lsh_attention_backward(Backend, const LshAttentionShape& shape, AttentionRows<const T> q,
                                AttentionRows<const T> v, const int32_t* buckets, const T* out,
                                const Compute<T>* log_sums, AttentionRows<const T> g, T* gq, T* gv);)

}  // namespace tapeformer
