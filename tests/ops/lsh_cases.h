// Random buckets, options and inputs for tests of LSH attention.
#pragma once

#include <string>

#include "ops/lsh_attention.h"
#include "tests/support/random.h"

namespace tapeformer::test {

// Returns int32 bucket ids (batch, heads, rounds, length), drawn uniformly from [0, count).
inline Tensor random_buckets(int64_t batch, int64_t heads, int64_t rounds, int64_t length, int64_t count,
                             int salt) {
  const Tensor buckets = Tensor::empty({batch, heads, rounds, length}, DType::int32);
  const RandomStream stream(5, "buckets", static_cast<uint64_t>(salt));
  for (int64_t i = 0; i < buckets.numel(); ++i)
    buckets.data<int32_t>()[i] =
        static_cast<int32_t>(stream.uniform_below(static_cast<uint64_t>(i), static_cast<uint64_t>(count)));
  return buckets;
}

// A generator of random integers for random_lsh_case(). dice(low, high) returns a number in [low, high].
class Dice {
 public:
  explicit Dice(uint64_t salt) : stream_(17, "dice", salt) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(stream_.uniform_below(next_++, static_cast<uint64_t>(high - low + 1)));
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// Options and inputs of LSH attention, and the bucket of each position.
struct LshCase {
  LshOptions options;
  Tensor q, v, buckets;
};
inline LshCase random_lsh_case(uint64_t salt) {
  Dice dice(salt);
  LshCase c;
  LshOptions& o = c.options;
  const int64_t batch = dice(1, 3), heads = dice(1, 3), length = dice(1, 64), dim = dice(1, 20);
  o.rounds = dice(1, 5);
  o.chunk_length = dice(0, 3) == 0 ? dice(1, 70) : dice(1, 12);
  o.wrap = static_cast<LshOptions::Wrap>(dice(0, 2));
  o.duplicates = static_cast<LshOptions::Duplicates>(dice(0, 1));
  o.across_buckets = dice(0, 1) == 1;
  o.scale = static_cast<LshOptions::Scale>(dice(0, 1));
  o.combine = dice(0, 3) == 0 ? LshOptions::Combine::mean : LshOptions::Combine::logsumexp;
  o.causal = dice(0, 1) == 1;
  if (dice(0, 1) == 1) {
    o.key_lengths = Tensor::zeros({batch}, DType::int64);
    for (int64_t n = 0; n < batch; ++n) o.key_lengths.data<int64_t>()[n] = dice(0, length);
  }
  c.q = normal({batch, length, heads, dim}, static_cast<int>(3 * salt));
  c.v = normal({batch, length, heads, dice(1, 20)}, static_cast<int>(3 * salt + 1));
  c.buckets = random_buckets(batch, heads, o.rounds, length, dice(1, length), static_cast<int>(salt));
  return c;
}

inline std::string describe(const LshCase& c) {
  const LshOptions& o = c.options;
  return concat_text("q ", c.q.shape(), " v ", c.v.shape(), " rounds ", o.rounds, " chunk ", o.chunk_length,
                     " wrap ", static_cast<int>(o.wrap), " duplicates ", static_cast<int>(o.duplicates),
                     " across ", o.across_buckets, " combine ", static_cast<int>(o.combine), " causal ",
                     o.causal, " lengths ", o.key_lengths.defined());
}

}  // namespace tapeformer::test
