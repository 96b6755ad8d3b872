// A reference implementation of LSH attention. It computes a matrix (length, length) of log weights from the
// definition and applies recorded ops to it, so that backward() gives reference gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/elementwise.h"
#include "ops/lsh_attention.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/random.h"

namespace tapeformer::test {

// The multiplicities of the keys. Element i * length + j is the number of times that LSH attention finds key
// j for query i.
using KeyCounts = std::vector<double>;

// Returns the key counts of one head for each round. `ids` (rounds, length) contains the bucket ids.
// Positions at and after `valid` are padding.
inline std::vector<KeyCounts> key_counts(const int32_t* ids, int64_t length, int64_t valid,
                                         const LshOptions& o) {
  const int64_t m = o.chunk_length, chunks = (valid + m - 1) / m;
  struct Item {
    int64_t position, round, bucket;
  };
  std::vector<std::vector<std::vector<Item>>> lists;  // indexed by round and chunk
  for (int64_t r = 0; r < o.rounds; ++r) {
    std::vector<int64_t> order(static_cast<size_t>(valid));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return ids[r * length + a] * length + a < ids[r * length + b] * length + b;
    });
    auto& round = lists.emplace_back(static_cast<size_t>(chunks));
    for (int64_t s = 0; s < valid; ++s) {
      const int64_t position = order[static_cast<size_t>(s)];
      round[static_cast<size_t>(s / m)].push_back({position, r, ids[r * length + position]});
    }
  }
  std::vector<KeyCounts> counts;
  for (int64_t r = 0; r < o.rounds; ++r) {
    KeyCounts& count = counts.emplace_back(static_cast<size_t>(length * length), 0.0);
    for (int64_t c = 0; c < chunks; ++c) {
      const auto& chunk = lists[static_cast<size_t>(r)][static_cast<size_t>(c)];
      std::vector<Item> keys = chunk;
      const std::vector<Item>* before = nullptr;
      if (c > 0)
        before = &lists[static_cast<size_t>(r)][static_cast<size_t>(c - 1)];
      else if (o.wrap == LshOptions::Wrap::round)
        before = &lists[static_cast<size_t>(r)].back();
      else if (o.wrap == LshOptions::Wrap::global)
        before = &lists[static_cast<size_t>((r + o.rounds - 1) % o.rounds)].back();
      if (before) keys.insert(keys.end(), before->begin(), before->end());
      for (const Item& i : chunk)
        for (const Item& j : keys) {
          const bool same_bucket = i.round == j.round && i.bucket == j.bucket;
          const bool allowed = (o.across_buckets || same_bucket) && (!o.causal || j.position <= i.position);
          if (allowed) ++count[static_cast<size_t>(i.position * length + j.position)];
        }
    }
  }
  return counts;
}

// Writes the log weight of each key for each query to `out` (length, length):
//   a key that the query finds n times: log(n) if `multiplicities` is true, otherwise 0
//   the key at the position of the query: 0 if the query finds no other key, otherwise -inf
//   all other keys, and all keys of queries at and after `valid`: -inf
inline void log_weights(const KeyCounts& counts, int64_t length, int64_t valid, bool multiplicities,
                        double* out) {
  for (int64_t i = 0; i < length; ++i) {
    bool alone = true;
    for (int64_t j = 0; j < length; ++j)
      alone = alone && (j == i || counts[static_cast<size_t>(i * length + j)] == 0);
    for (int64_t j = 0; j < length; ++j) {
      const double n = counts[static_cast<size_t>(i * length + j)];
      const bool seen = i < valid && (alone ? j == i : j != i && n > 0);
      out[i * length + j] = !seen ? -INFINITY : alone || !multiplicities ? 0 : std::log(n);
    }
  }
}

// Returns the expected result of lsh_attention() for the same arguments, computed by recorded ops.
inline Tensor lsh_oracle(const Tensor& query, const Tensor& value, const Tensor& buckets, LshOptions o) {
  const int64_t batch = query.size(0), length = query.size(1), heads = query.size(2);
  const bool whole = length <= o.chunk_length;  // one chunk, so LSH attention is exact
  const int64_t rounds = o.rounds;
  if (whole) {
    o.rounds = 1;
    o.across_buckets = true;
    o.wrap = LshOptions::Wrap::none;
  }
  const bool mean = o.combine == LshOptions::Combine::mean;
  const bool multiplicities = mean || o.duplicates == LshOptions::Duplicates::none;
  const int64_t softmaxes = mean ? o.rounds : 1;
  std::vector<Tensor> weights;
  for (int64_t r = 0; r < softmaxes; ++r)
    weights.push_back(Tensor::empty({batch, heads, length, length}, DType::float64));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = n * heads + h;
      const int64_t valid = o.key_lengths.defined() ? o.key_lengths.data<int64_t>()[n] : length;
      std::vector<KeyCounts> counts =
          key_counts(buckets.data<int32_t>() + head * rounds * length, length, valid, o);
      if (!mean) {
        for (size_t r = 1; r < counts.size(); ++r)
          for (size_t i = 0; i < counts[0].size(); ++i) counts[0][i] += counts[r][i];
      }
      for (int64_t r = 0; r < softmaxes; ++r)
        log_weights(counts[static_cast<size_t>(r)], length, valid, multiplicities,
                    weights[static_cast<size_t>(r)].data<double>() + head * length * length);
    }
  const Tensor q = permute(query, {0, 2, 1, 3}), v = permute(value, {0, 2, 1, 3});
  const auto dim = static_cast<double>(query.size(3));
  const Tensor k = div(q, sqrt(add(sum(square(q), -1, true), 1e-6 * dim)));
  const double scale = o.scale == LshOptions::Scale::rsqrt_dim ? 1 / std::sqrt(dim) : 1;
  const Tensor scores = mul(matmul(q, k, {.transpose_b = true}), scale);
  Tensor out;
  for (const Tensor& w : weights) {
    const Tensor one = mul(matmul(softmax(add(scores, w)), v), 1.0 / static_cast<double>(softmaxes));
    out = out.defined() ? add(out, one) : one;
  }
  return contiguous(permute(out, {0, 2, 1, 3}));
}

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
