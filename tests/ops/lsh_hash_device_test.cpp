// Tests that a device and the CPU assign positions to the same LSH buckets, except near ties.
//
// A bucket is the index of the maximum of [x R, -x R], where x is a query and R is a random matrix. A device
// may compute the last bits of R and of the products differently from the CPU. If two values differ by less
// than the rounding errors, a device may therefore select the second largest value. This is a near tie. The
// tests print near ties and limit their number.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/lsh_attention.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kHashBatch = 3, kHashHeads = 2, kHashRounds = 3;
constexpr auto kRotations = LshOptions::Hash::rotations, kHyperplanes = LshOptions::Hash::hyperplanes;

struct HashCase {
  int64_t length, dim;
  LshBucketCounts requested;
  LshOptions::Hash hash;
  bool share, with_lengths;

  LshOptions options() const {
    LshOptions result{.rounds = kHashRounds,
                      .chunk_length = share ? 1 : 32,
                      .buckets = requested.total() > 1 ? requested.total() : 0,
                      .hash = hash};
    result.share_rotations = share;
    if (with_lengths)
      result.key_lengths = Tensor::from_vector<int64_t>({length, 0, length / 2}, {kHashBatch});
    return result;
  }
  LshBucketCounts factors(int64_t example) const {
    LshHashShape shape;
    shape.chunk_length = options().chunk_length;
    shape.requested_buckets = requested;
    shape.allow_two_rotations = hash == kRotations;
    return shape.compute_bucket_counts(valid(example));
  }
  int64_t valid(int64_t example) const {
    return with_lengths ? options().key_lengths.data<int64_t>()[example] : length;
  }
};

const HashCase kHashCases[] = {
    {70, 5, {6, 1}, kRotations, false, true},       {300, 33, {12, 12}, kRotations, false, false},
    {150, 64, {150, 1}, kHyperplanes, false, true}, {90, 3, {}, kRotations, true, false},
    {20, 3, {}, kRotations, false, true},           {133, 3, {}, kRotations, true, true},
    {0, 3, {}, kRotations, false, false},
};

// Computes the rotated values of one case in float64, from the definition of the random stream in
// ops/kernels/lsh_attention.h.
class HashValues {
 public:
  HashValues(const HashCase& c, const Tensor& q, const RandomStream& stream)
      : case_(c), dim_(c.dim), q_(q.to_vector()), stream_(stream) {}

  // `difference` is the maximum of the rotated values minus the value of a bucket. `bound` is the largest
  // difference that rounding errors can cause.
  struct Gap {
    double difference = 0, bound = 1;
    bool is_near_tie() const { return difference <= bound; }
  };
  Gap gap_of(int64_t example, int64_t head, int64_t round, int64_t position, int64_t bucket) const {
    const LshBucketCounts factors = case_.factors(example);
    const Gap first = gap_in(example, head, round, position, 0, factors.first, bucket % factors.first);
    const Gap second = gap_in(example, head, round, position, 1, factors.second, bucket / factors.first);
    return first.difference * second.bound > second.difference * first.bound ? first : second;
  }

  // Returns element d of column `column` of a rotation matrix R.
  double element(int64_t example, int64_t head, int64_t round, int64_t factor, int64_t column,
                 int64_t d) const {
    if (case_.share) example = 0;
    if (case_.hash == kHyperplanes) example = head = 0;
    const int64_t e = column * dim_ + d;
    const int64_t block =
        (((example << 12) + head) << 8 | round) * (int64_t{1} << 24) + factor * (1 << 23) + e / 4;
    const PhiloxBlock bits = stream_.block(static_cast<uint64_t>(block));
    const auto pair = static_cast<size_t>(e % 4 / 2);
    const float u = (static_cast<float>(bits[2 * pair] >> 8) + 0.5f) * 0x1p-24f;
    const double angle = 0x1p-32f * 6.2831853f * static_cast<float>(bits[2 * pair + 1]);
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(u)));
    return radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
  double query(int64_t example, int64_t head, int64_t position, int64_t d) const {
    return q_[static_cast<size_t>(((example * case_.length + position) * kHashHeads + head) * dim_ + d)];
  }

 private:
  // Assumed number of rounding errors in an element of R on the CPU and the device. The computation of an
  // element consists of a logarithm, a square root, a sine or cosine, and products.
  static constexpr double kElementRoundings = 8;

  Gap gap_in(int64_t example, int64_t head, int64_t round, int64_t position, int64_t factor, int64_t buckets,
             int64_t bucket) const {
    if (buckets < 2) return {};
    const int64_t columns = buckets / 2;
    double largest = -INFINITY, largest_sum = 0, chosen = 0, chosen_sum = 0;
    for (int64_t column = 0; column < columns; ++column) {
      double value = 0, absolute_sum = 0;
      for (int64_t d = 0; d < dim_; ++d) {
        const double term =
            query(example, head, position, d) * element(example, head, round, factor, column, d);
        value += term;
        absolute_sum += std::abs(term);
      }
      for (const int64_t sign : {1, -1}) {
        if (sign * value > largest) {
          largest = sign * value;
          largest_sum = absolute_sum;
        }
        if (bucket == column + (sign > 0 ? 0 : columns)) {
          chosen = sign * value;
          chosen_sum = absolute_sum;
        }
      }
    }
    // Rounding errors of a sum of n terms grow like sqrt(n) with high probability.
    const double roundings = kElementRoundings + 2 * std::sqrt(static_cast<double>(dim_));
    return {largest - chosen, roundings * 0x1p-23 * (largest_sum + chosen_sum)};
  }

  const HashCase case_;
  const int64_t dim_;
  const std::vector<double> q_;
  const RandomStream stream_;
};

struct BucketDifferences {
  int64_t near_ties = 0;
  int64_t errors = 0;
};

// Compares two tensors of buckets (batch, heads, rounds, length). Counts and prints the differences.
BucketDifferences compare_buckets(const HashCase& c, const HashValues& values, const Tensor& expected,
                                  const Tensor& found) {
  BucketDifferences result;
  const auto a = expected.to_vector(), b = found.to_vector();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const auto index = static_cast<int64_t>(i);
    const int64_t position = index % c.length, round = index / c.length % kHashRounds;
    const int64_t head = index / c.length / kHashRounds % kHashHeads,
                  example = index / c.length / kHashRounds / kHashHeads;
    const auto bucket = static_cast<int64_t>(b[i]);
    const bool possible = position < c.valid(example) && bucket >= 0 && bucket < c.factors(example).total();
    const HashValues::Gap gap =
        possible ? values.gap_of(example, head, round, position, bucket) : HashValues::Gap{INFINITY, 0};
    ++(gap.is_near_tie() ? result.near_ties : result.errors);
    MESSAGE(std::string(gap.is_near_tie() ? "near tie" : "error")
            << ": example " << example << ", head " << head << ", round " << round << ", position "
            << position << ": buckets " << a[i] << " and " << bucket << ", difference of values "
            << gap.difference << ", bound " << gap.bound);
  }
  return result;
}

// Checks that the buckets of a device equal the buckets of the CPU, except near ties. At most 1 + n / 1000
// near ties are allowed for n buckets. The emulation computes R with the functions of the CPU, so it has no
// near ties.
void check_device_buckets(const HashCase& c, const HashValues& values, const Tensor& expected,
                          const Tensor& found) {
  const BucketDifferences differences = compare_buckets(c, values, expected, found);
  CHECK(differences.errors == 0);
  bool emulated = false;
  if constexpr (kHasCuda) emulated = cuda::is_emulated();
  CHECK(differences.near_ties <= (emulated ? 0 : 1 + expected.numel() / 1000));
}

// Moves the query at position 0 to the nearest point where the two largest values of the first rotation are
// equal. `largest` is the bucket of the largest value. Returns the bucket of the second largest value.
int64_t move_to_tie(const HashCase& c, const HashValues& values, const Tensor& q, int64_t largest) {
  const int64_t columns = c.requested.first / 2;
  const auto element = [&](int64_t bucket, int64_t d) {
    return (bucket < columns ? 1 : -1) * values.element(0, 0, 0, 0, bucket % columns, d);
  };
  const auto value_of = [&](int64_t bucket) {
    double value = 0;
    for (int64_t d = 0; d < c.dim; ++d) value += values.query(0, 0, 0, d) * element(bucket, d);
    return value;
  };
  int64_t second = largest == 0 ? 1 : 0;
  for (int64_t bucket = 0; bucket < c.requested.first; ++bucket)
    if (bucket != largest && value_of(bucket) > value_of(second)) second = bucket;
  double squared_norm = 0;
  for (int64_t d = 0; d < c.dim; ++d) squared_norm += std::pow(element(largest, d) - element(second, d), 2);
  const double step = (value_of(largest) - value_of(second)) / squared_norm;
  for (int64_t d = 0; d < c.dim; ++d)
    q.data<double>()[d] -= step * (element(largest, d) - element(second, d));
  return second;
}

}  // namespace

TEST_CASE("cuda: LSH buckets equal the buckets on the CPU except near ties") {
  const RandomStream stream(3, "hash", 5);
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const HashCase& c : kHashCases) {
        CAPTURE(c.length);
        const LshOptions options = c.options();
        const Tensor q = normal({kHashBatch, c.length, kHashHeads, c.dim}, 1, dtype);
        const Tensor here = compute_lsh_buckets(q, options, stream);
        const Tensor there = compute_lsh_buckets(q.to(device), options, stream);
        CHECK(there.device() == device);
        check_device_buckets(c, {c, q, stream}, here, there);
        const Tensor rounded = q.to(DType::bfloat16);
        const Tensor rounded_here = compute_lsh_buckets(rounded.to(DType::float32), options, stream);
        check_device_buckets(c, {c, rounded.to(DType::float64), stream}, rounded_here,
                             compute_lsh_buckets(rounded.to(device), options, stream));
        CHECK(compute_lsh_buckets(rounded, options, stream).to_vector() == rounded_here.to_vector());
        if (c.length > 32) CHECK(here.to_vector() != std::vector<double>(here.to_vector().size(), 0.0));
      }
}

TEST_CASE("lsh buckets: the CPU selects the largest value of the definition in float64 except near ties") {
  const RandomStream stream(3, "hash", 5);
  for (const HashCase& c : kHashCases) {
    CAPTURE(c.length);
    const Tensor q = normal({kHashBatch, c.length, kHashHeads, c.dim}, 1, DType::float32);
    const Tensor buckets = compute_lsh_buckets(q, c.options(), stream);
    const HashValues values(c, q, stream);
    int64_t near_ties = 0, hashed = 0;
    const int32_t* bucket = buckets.data<int32_t>();
    for (int64_t sequence = 0; sequence < kHashBatch * kHashHeads; ++sequence)
      for (int64_t round = 0; round < kHashRounds; ++round)
        for (int64_t position = 0; position < c.length; ++position, ++bucket) {
          const int64_t example = sequence / kHashHeads;
          if (position >= c.valid(example)) continue;
          const HashValues::Gap gap = values.gap_of(example, sequence % kHashHeads, round, position, *bucket);
          REQUIRE(gap.is_near_tie());
          ++hashed;
          near_ties += gap.difference > 0;
        }
    CHECK(near_ties <= 1 + hashed / 1000);
  }
}

TEST_CASE("control: a wrong bucket is an error, and a bucket of an equal value is a near tie") {
  const HashCase c = kHashCases[1];
  const RandomStream stream(3, "hash", 5);
  const Tensor q = normal({kHashBatch, c.length, kHashHeads, c.dim}, 1, DType::float64);
  const Tensor buckets = compute_lsh_buckets(q, c.options(), stream);
  Tensor changed = buckets.clone();
  const HashValues values(c, q, stream);

  // Moves position 0 of the first round to the next bucket of the first rotation.
  const auto own = changed.data<int32_t>()[0];
  const auto first = static_cast<int32_t>(c.requested.first);
  const int32_t next = own / first * first + (own + 1) % first;
  changed.data<int32_t>()[0] = next;
  BucketDifferences differences = compare_buckets(c, values, buckets, changed);
  CHECK(differences.errors == 1);
  CHECK(differences.near_ties == 0);

  const int64_t second = move_to_tie(c, values, q, own % first);
  // The moved query can have another bucket in the second rotation, so the buckets are computed again.
  const Tensor tied = compute_lsh_buckets(q, c.options(), stream);
  const int32_t found = tied.data<int32_t>()[0];
  REQUIRE((found % first == own % first || found % first == second));
  const auto other = static_cast<int32_t>(found % first == second ? own % first : second);
  changed = tied.clone();
  changed.data<int32_t>()[0] = found / first * first + other;
  differences = compare_buckets(c, {c, q, stream}, tied, changed);
  CHECK(differences.errors == 0);
  CHECK(differences.near_ties == 1);
}
