#include "ops/lsh_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/allocator.h"
#include "core/threads/threads.h"
#include "ops/reference/lsh_attention.h"
#include "ops/sum.h"
#include "tests/ops/lsh_cases.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Wrap = LshOptions::Wrap;
using Duplicates = LshOptions::Duplicates;

const RandomStream kStream(3, "rotations");

// Returns full attention in which the queries are also the keys. This is lsh_attention_reference() with one
// bucket and one chunk, which contains the whole sequence.
Tensor full_attention(const Tensor& q, const Tensor& v, LshOptions options) {
  options.chunk_length = q.size(1);
  options.buckets = 0;
  return lsh_attention_reference(q, v, random_buckets(q.size(0), q.size(2), options.rounds, q.size(1), 1, 0),
                                 options);
}

// Returns the largest difference between LSH attention with two chunks and full attention, for random
// buckets.
double two_chunk_error(Wrap wrap, Duplicates duplicates, int64_t rounds, bool causal) {
  const LshOptions options{.rounds = rounds,
                           .chunk_length = 16,
                           .wrap = wrap,
                           .duplicates = duplicates,
                           .across_buckets = true,
                           .causal = causal};
  const Tensor q = normal({2, 32, 2, 6}, 1), v = normal({2, 32, 2, 5}, 2);
  const Tensor buckets = random_buckets(2, 2, rounds, 32, 8, 9);
  return max_difference(lsh_attention(q, v, buckets, options), full_attention(q, v, options));
}

Tensor rows_of(const Tensor& x, int64_t begin, int64_t end) {
  return slice(x, 1, begin, end);
}

}  // namespace

TEST_CASE("lsh attention: one chunk equals full attention for every number of rounds, wrap and duplicates") {
  for (const int64_t rounds : {1, 2, 5})
    for (const Wrap wrap : {Wrap::none, Wrap::round, Wrap::global})
      for (const Duplicates duplicates : {Duplicates::none, Duplicates::exact})
        for (const bool across : {false, true}) {
          const LshOptions options{.rounds = rounds,
                                   .chunk_length = 20,
                                   .wrap = wrap,
                                   .duplicates = duplicates,
                                   .across_buckets = across,
                                   .causal = true};
          const Tensor q = normal({2, 20, 2, 6}, 1), v = normal({2, 20, 2, 5}, 2);
          const Tensor out = lsh_attention(q, v, compute_lsh_buckets(q, options, kStream), options);
          CHECK(max_difference(out, full_attention(q, v, options)) < 1e-12);
        }
}

TEST_CASE(
    "lsh attention: two chunks equal full attention for any hash with a wrap, and differ without a wrap") {
  for (const bool causal : {false, true}) {
    CHECK(two_chunk_error(Wrap::round, Duplicates::none, 1, causal) < 1e-12);
    CHECK(two_chunk_error(Wrap::global, Duplicates::exact, 1, causal) < 1e-12);
    CHECK(two_chunk_error(Wrap::none, Duplicates::none, 1, causal) > 0.05);
    for (const int64_t rounds : {2, 4}) {
      CHECK(two_chunk_error(Wrap::round, Duplicates::none, rounds, causal) < 1e-12);
      CHECK(two_chunk_error(Wrap::round, Duplicates::exact, rounds, causal) < 1e-12);
      CHECK(two_chunk_error(Wrap::global, Duplicates::exact, rounds, causal) < 1e-12);
      CHECK(two_chunk_error(Wrap::global, Duplicates::none, rounds, causal) > 0.05);
    }
  }
}

TEST_CASE("control: results of the reference implementation differ for different LSH options") {
  const Tensor q = normal({1, 48, 1, 4}, 1), v = normal({1, 48, 1, 4}, 2);
  const LshOptions plain{.rounds = 3, .chunk_length = 6, .causal = true};
  const Tensor buckets = random_buckets(1, 1, 3, 48, 8, 2), out = lsh_attention(q, v, buckets, plain);
  std::vector<LshOptions> others(7, plain);
  others[0].wrap = Wrap::global;
  others[0].across_buckets = others[1].across_buckets = true;
  others[2].duplicates = Duplicates::none;
  others[3].scale = LshOptions::Scale::rsqrt_dim;
  others[4].combine = LshOptions::Combine::mean;
  others[5].causal = false;
  others[6].chunk_length = 7;
  for (const LshOptions& other : others)
    CHECK(max_difference(out, lsh_attention_reference(q, v, buckets, other)) > 1e-3);
  CHECK(max_difference(out, lsh_attention_reference(q, v, buckets, plain)) < 1e-12);
}

TEST_CASE("lsh attention: a position that attends to no other position returns its value") {
  const LshOptions options{.rounds = 3, .chunk_length = 4, .causal = true};
  const Tensor q = normal({1, 30, 2, 5}, 1), v = normal({1, 30, 2, 3}, 2);
  const Tensor buckets = random_buckets(1, 2, 3, 30, 4, 2);
  CHECK(max_difference(rows_of(lsh_attention(q, v, buckets, options), 0, 1), rows_of(v, 0, 1)) == 0);
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t r = 0; r < 3; ++r) buckets.data<int32_t>()[(head * 3 + r) * 30 + 11] = 9;
  CHECK(max_difference(rows_of(lsh_attention(q, v, buckets, options), 11, 12), rows_of(v, 11, 12)) == 0);
}

TEST_CASE("lsh attention: positions after the length of a sequence have no effect") {
  for (const auto& preset : {"reformer", "trax", "fast_transformers"}) {
    LshOptions padded = make_lsh_preset(preset);
    padded.chunk_length = 8;
    padded.buckets = 10;
    padded.causal = false;
    LshOptions alone = padded;
    padded.key_lengths = Tensor::from_vector<int64_t>({37, 61}, {2});
    const Tensor q = normal({2, 61, 2, 5}, 1), v = normal({2, 61, 2, 3}, 2);
    const Tensor out = lsh_attention(q, v, compute_lsh_buckets(q, padded, kStream), padded);
    const Tensor q2 = q.clone(), v2 = v.clone();
    for (int64_t i = 37 * 10; i < 61 * 10; ++i) q2.data<double>()[i] = NAN;
    for (int64_t i = 37 * 6; i < 61 * 6; ++i) v2.data<double>()[i] = NAN;
    CHECK(max_difference(lsh_attention(q2, v2, compute_lsh_buckets(q2, padded, kStream), padded), out) == 0);
    CHECK(max_difference(slice(rows_of(out, 37, 61), 0, 0, 1),
                         Tensor::zeros({1, 24, 2, 3}, DType::float64)) == 0);
    // Computes LSH attention of this sequence alone and without padding.
    const Tensor short_q = slice(rows_of(q, 0, 37), 0, 0, 1), short_v = slice(rows_of(v, 0, 37), 0, 0, 1);
    const Tensor short_out =
        lsh_attention(short_q, short_v, compute_lsh_buckets(short_q, alone, kStream), alone);
    CHECK(max_difference(short_out, slice(rows_of(out, 0, 37), 0, 0, 1)) == 0);
  }
}

TEST_CASE("lsh attention: the result of a sequence does not depend on its batch") {
  for (const auto& preset : {"reformer", "trax", "fast_transformers"})
    for (const auto& size : {std::pair<int64_t, int64_t>{8, 0}, {8, 64}, {1, 0}, {1, 160}})
      for (const int64_t length : {1, 5, 7, 8, 9, 16, 61, 150, 300}) {
        const int64_t chunk = std::get<0>(size), buckets = std::get<1>(size);
        CAPTURE(preset);
        CAPTURE(chunk);
        CAPTURE(buckets);
        CAPTURE(length);
        LshOptions options = make_lsh_preset(preset);
        options.chunk_length = chunk;
        options.buckets = buckets;
        options.allow_any_length = options.share_rotations = true;
        const Tensor q = normal({2, 300, 2, 5}, 1), v = normal({2, 300, 2, 3}, 2);
        const auto run = [&](int64_t padded) {
          const auto cut = [&](const Tensor& x) { return rows_of(x, 0, padded); };
          options.key_lengths = Tensor::from_vector<int64_t>({length, padded}, {2});
          return rows_of(
              lsh_attention(cut(q), cut(v), compute_lsh_buckets(cut(q), options, kStream), options), 0,
              length);
        };
        const auto first = [](const Tensor& out) { return slice(out, 0, 0, 1); };
        CHECK(max_difference(first(run(length)), first(run(300))) < 1e-12);
      }
}

TEST_CASE("lsh attention: strided inputs are read without a copy") {
  const LshOptions options{.rounds = 2, .chunk_length = 8};
  const Tensor q = normal({2, 2, 40, 5}, 1), v = normal({2, 2, 40, 3}, 2);  // (batch, heads, length, dim)
  const Tensor qt = permute(q, {0, 2, 1, 3}), vt = permute(v, {0, 2, 1, 3});
  const Tensor buckets = compute_lsh_buckets(qt, options, kStream);
  CHECK(max_difference(lsh_attention(qt, vt, buckets, options),
                       lsh_attention(contiguous(qt), contiguous(vt),
                                     compute_lsh_buckets(contiguous(qt), options, kStream), options)) == 0);
}

TEST_CASE("lsh attention: results are bit-identical for equal seeds and any number of threads") {
  const int before = get_thread_count();
  for (const Shape& shape : {Shape{1, 700, 1, 16}, Shape{2, 300, 3, 20}})
    for (const bool across : {false, true}) {
      const LshOptions options{.chunk_length = 16,
                               .wrap = across ? Wrap::global : Wrap::none,
                               .across_buckets = across,
                               .causal = true};
      auto run = [&](int count, uint64_t seed = 3) {
        set_thread_count(count);
        const Tensor q = set_requires_grad(normal(shape, 1, DType::float32)),
                     v = set_requires_grad(normal(shape, 2, DType::float32));
        const Tensor buckets = compute_lsh_buckets(q, options, RandomStream(seed, "rotations"));
        const Tensor out = lsh_attention(q, v, buckets, options);
        backward(out, normal(shape, 3, DType::float32));
        std::vector<double> all = buckets.to_vector();
        for (const Tensor& x : {out, gradient(q), gradient(v)})
          for (const double value : x.to_vector()) all.push_back(value);
        return all;
      };
      const std::vector<double> one = run(1);
      CHECK(run(1) == one);
      CHECK(run(2) == one);
      CHECK(run(7) == one);
      CHECK(run(2, 4) != one);
    }
  set_thread_count(before);
}

TEST_CASE("lsh attention: memory grows with the length") {
  auto peak = [](int64_t length) {
    const LshOptions options{.chunk_length = 32, .causal = true};
    const Tensor q = set_requires_grad(normal({1, length, 2, 16}, 1, DType::float32)),
                 v = set_requires_grad(normal({1, length, 2, 16}, 2, DType::float32));
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    backward(lsh_attention(q, v, compute_lsh_buckets(q, options, kStream), options),
             Tensor::full({1, length, 2, 16}, 1));
    return get_device_allocator().stats().peak_bytes - before;
  };
  const int64_t at_1k = peak(1024), at_8k = peak(8192);
  CHECK(at_8k < 9 * at_1k);
}

TEST_CASE("lsh buckets: identical vectors always share a bucket, and opposite vectors never do") {
  for (const int64_t buckets : {2, 16, 128, 132, 256}) {
    const LshOptions options{.rounds = 4, .chunk_length = 8, .buckets = buckets};
    const Tensor q = normal({1, 300, 2, 6}, 1);
    double* const x = q.data<double>();
    for (int64_t t = 0; t < 100; ++t)
      for (int64_t i = 0; i < 12; ++i) {
        x[(100 + t) * 12 + i] = 3 * x[t * 12 + i];  // scales the vector, which does not change its bucket
        x[(200 + t) * 12 + i] = -x[t * 12 + i];
      }
    const Tensor ids = compute_lsh_buckets(q, options, kStream);
    CHECK(count_lsh_buckets(options, 300) == buckets);
    std::vector<int> used(static_cast<size_t>(buckets));
    for (int64_t row = 0; row < 8; ++row)
      for (int64_t t = 0; t < 300; ++t) {
        const int32_t* const id = ids.data<int32_t>() + row * 300;
        REQUIRE(id[t] >= 0);
        REQUIRE(id[t] < buckets);
        ++used[static_cast<size_t>(id[t])];
        if (t < 100) REQUIRE(id[t] == id[100 + t]);
        if (t < 100) REQUIRE(id[t] != id[200 + t]);
      }
    CHECK(std::count(used.begin(), used.end(), 0) <= buckets / 8);
  }
}

TEST_CASE("lsh buckets: close vectors share a bucket more often than distant vectors") {
  const int64_t n = 4000, dim = 16;
  const LshOptions options{.rounds = 1, .chunk_length = 64, .buckets = 16};
  const Tensor base = normal({1, n, 1, dim}, 1), noise = normal({1, n, 1, dim}, 2);
  const Tensor ids = compute_lsh_buckets(base, options, kStream);
  double last = 2;
  for (const double angle : {0.1, 0.5, 1.0, 1.5}) {
    const Tensor other = add(mul(base, std::cos(angle)), mul(noise, std::sin(angle)));
    const Tensor other_ids = compute_lsh_buckets(other, options, kStream);
    double same = 0;
    for (int64_t i = 0; i < n; ++i) same += ids.data<int32_t>()[i] == other_ids.data<int32_t>()[i];
    CHECK(same / n < last - 0.05);
    last = same / n;
  }
  CHECK(last < 0.15);  // with 16 buckets, unrelated vectors share a bucket with probability 1/16
}

TEST_CASE("lsh buckets: rounds do not depend on their number, heads and examples differ, and dtypes agree") {
  for (const auto hash : {LshOptions::Hash::rotations, LshOptions::Hash::hyperplanes}) {
    LshOptions options{.rounds = 8, .chunk_length = 4, .hash = hash};
    const Tensor one = normal({1, 64, 1, 8}, 1);
    const Tensor q = contiguous(broadcast_to(one, {2, 64, 2, 8}));
    const Tensor eight = compute_lsh_buckets(q, options, kStream);
    options.rounds = 3;
    const Tensor three = compute_lsh_buckets(q, options, kStream);
    CHECK(max_difference(three, slice(eight, 2, 0, 3)) == 0);
    CHECK(max_difference(slice(eight, 2, 0, 1), slice(eight, 2, 1, 2)) > 0);
    const bool shared = hash == LshOptions::Hash::hyperplanes;
    CHECK((max_difference(slice(eight, 0, 0, 1), slice(eight, 0, 1, 2)) == 0) == shared);
    CHECK((max_difference(slice(eight, 1, 0, 1), slice(eight, 1, 1, 2)) == 0) == shared);
    CHECK(max_difference(three, compute_lsh_buckets(q, options, kStream.at_step(1))) > 0);
    CHECK(max_difference(three, compute_lsh_buckets(q.to(DType::float32), options, kStream)) == 0);
  }
}

TEST_CASE(
    "lsh buckets: their number depends on length and chunk length, and masked positions have the last "
    "bucket") {
  LshOptions options{.chunk_length = 64};
  CHECK(count_lsh_buckets(options, 64) == 1);
  CHECK(count_lsh_buckets(options, 65) == 2);
  CHECK(count_lsh_buckets(options, 1024) == 32);
  CHECK(count_lsh_buckets(options, 4096) == 128);
  CHECK(count_lsh_buckets(options, 65536) == 2048);  // 65536 / 64 chunks with two buckets each
  // A sequence has two buckets for each complete chunk of 64 keys. The second sequence has 150 keys and
  // therefore 4 buckets. The 3 keys of the first sequence fit in one chunk, so this sequence has 1 bucket.
  options.key_lengths = Tensor::from_vector<int64_t>({3, 150}, {2});
  const Tensor ids = compute_lsh_buckets(normal({2, 200, 1, 4}, 1), options, kStream);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const bool second = i >= ids.numel() / 2;
    const int32_t buckets = second ? 4 : 1, id = ids.data<int32_t>()[i];
    REQUIRE((id == buckets) == (i % 200 >= (second ? 150 : 3)));
    REQUIRE((id >= 0 && id <= buckets));
  }
}

TEST_CASE("lsh attention: errors about arguments contain a remedy") {
  const Tensor q = normal({1, 50, 1, 4}, 1), v = normal({1, 50, 1, 4}, 2);
  auto hash_error = [&](const LshOptions& options, const char* text) {
    CHECK_THROWS_WITH_AS(compute_lsh_buckets(q, options, kStream), doctest::Contains(text), ShapeError);
  };
  hash_error({.rounds = 0}, "rounds must be 1 to 255, not 0");
  hash_error({.chunk_length = 0}, "chunk_length must be at least 1, not 0");
  hash_error({.chunk_length = 5, .buckets = 7}, "buckets must be even");
  hash_error({.chunk_length = 5, .buckets = 52}, "52 buckets are more than the 50 positions: lower buckets");
  hash_error(
      {.chunk_length = 64, .buckets = 8},
      "length 50 fits in one chunk of 64, which is exact attention and needs no buckets: set buckets to "
      "0 instead of 8");
  CHECK_THROWS_WITH_AS(count_lsh_buckets({.chunk_length = 5, .buckets = 130}, 500),
                       doctest::Contains("must be a multiple of 4, not 130"), ShapeError);
  const LshOptions options{.chunk_length = 5};
  const Tensor ids = compute_lsh_buckets(q, options, kStream);
  CHECK_THROWS_WITH_AS(lsh_attention(q, rows_of(v, 0, 49), ids, options),
                       "lsh_attention: q of length 50 and v of length 49: queries are also the keys, so "
                       "both lengths must be equal",
                       ShapeError);
  CHECK_THROWS_WITH_AS(lsh_attention(q, v, ids, {.rounds = 3, .chunk_length = 5}),
                       doctest::Contains("expected contiguous int32 buckets (1, 1, 3, 50)"), ShapeError);
  CHECK_THROWS_WITH_AS(lsh_attention(q, v, {}, options), doctest::Contains("not undefined"), ShapeError);
  ids.data<int32_t>()[7] = 51;
  CHECK_THROWS_WITH_AS(lsh_attention(q, v, ids, options), doctest::Contains("bucket 51 is not in [0, 50]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(make_lsh_preset("reformers"),
                       "unknown LSH preset \"reformers\" (known: reformer, trax, fast_transformers)",
                       ConfigError);
}

TEST_CASE("lsh presets have the options of the paper and of the two programs") {
  const LshOptions paper = make_lsh_preset("reformer"), trax = make_lsh_preset("trax"),
                   fast = make_lsh_preset("fast_transformers");
  CHECK(paper.wrap == Wrap::none);
  CHECK(paper.duplicates == Duplicates::exact);
  CHECK_FALSE(paper.across_buckets);
  CHECK(trax.wrap == Wrap::global);
  CHECK(trax.duplicates == Duplicates::none);
  CHECK(trax.across_buckets);
  for (const LshOptions& preset : {paper, trax}) {
    CHECK(preset.scale == LshOptions::Scale::unit_key);
    CHECK(preset.combine == LshOptions::Combine::logsumexp);
    CHECK(preset.hash == LshOptions::Hash::rotations);
    CHECK(preset.buckets == 0);
  }
  CHECK(fast.wrap == Wrap::none);
  CHECK(fast.duplicates == Duplicates::none);
  CHECK(fast.across_buckets);
  CHECK(fast.scale == LshOptions::Scale::rsqrt_dim);
  CHECK(fast.combine == LshOptions::Combine::mean);
  CHECK(fast.hash == LshOptions::Hash::hyperplanes);
  CHECK(fast.buckets == 64);
  CHECK(fast.chunk_length == 32);
}

TEST_CASE("lsh attention: with fixed buckets, later positions do not change earlier results") {
  for (const Wrap wrap : {Wrap::none, Wrap::global}) {
    LshOptions options{.rounds = 3, .chunk_length = 6, .wrap = wrap, .across_buckets = true, .causal = true};
    const Tensor q = normal({1, 50, 2, 5}, 1), v = normal({1, 50, 2, 3}, 2);
    const Tensor buckets = random_buckets(1, 2, 3, 50, 9, 2);
    const Tensor q2 = q.clone(), v2 = v.clone();
    for (int64_t i = 31 * 10; i < 50 * 10; ++i) q2.data<double>()[i] = -q.data<double>()[i] + 1;
    for (int64_t i = 31 * 6; i < 50 * 6; ++i) v2.data<double>()[i] = 7;
    const auto change = [&](int64_t begin, int64_t end) {
      return max_difference(rows_of(lsh_attention(q, v, buckets, options), begin, end),
                            rows_of(lsh_attention(q2, v2, buckets, options), begin, end));
    };
    CHECK(change(0, 31) == 0);
    options.causal = false;
    CHECK(change(0, 31) > 0.1);
  }
}

TEST_CASE("lsh buckets: more rounds find more of the nearest keys of a query") {
  constexpr int64_t kLength = 512, kHeadDim = 16, kNearest = 8;
  const Tensor q = normal({1, kLength, 1, kHeadDim}, 1);
  const LshOptions options{.rounds = 8, .chunk_length = 32};
  const Tensor ids = compute_lsh_buckets(q, options, kStream);
  const double* const x = q.data<double>();
  std::vector<double> found(8);
  for (int64_t i = 0; i < kLength; ++i) {
    std::vector<std::pair<double, int64_t>> near;
    for (int64_t j = 0; j < kLength; ++j) {
      double dot = 0, norm = 0;
      for (int64_t d = 0; d < kHeadDim; ++d) {
        dot += x[i * kHeadDim + d] * x[j * kHeadDim + d];
        norm += x[j * kHeadDim + d] * x[j * kHeadDim + d];
      }
      if (j != i) near.emplace_back(-dot / std::sqrt(norm), j);
    }
    std::partial_sort(near.begin(), near.begin() + kNearest, near.end());
    for (int64_t n = 0; n < kNearest; ++n) {
      bool met = false;
      for (int64_t r = 0; r < 8; ++r) {
        const int32_t* const id = ids.data<int32_t>() + r * kLength;
        met = met || id[i] == id[near[static_cast<size_t>(n)].second];
        found[static_cast<size_t>(r)] += met;
      }
    }
  }
  for (size_t r = 1; r < 8; ++r) CHECK(found[r] > found[r - 1]);
  // In one round, two unrelated positions share a bucket with probability 1/32.
  CHECK(found[0] > 3 * kLength * kNearest / 32);
}

TEST_CASE("lsh attention: empty sequences and batches are valid") {
  const LshOptions options{.chunk_length = 5};
  for (const Shape& shape : {Shape{2, 0, 1, 3}, Shape{0, 9, 1, 3}}) {
    const Tensor q = set_requires_grad(normal(shape, 1)), v = set_requires_grad(normal(shape, 2));
    const Tensor out = lsh_attention(q, v, compute_lsh_buckets(q, options, kStream), options);
    CHECK(out.shape() == shape);
    backward(out, Tensor::zeros(shape, DType::float64));
  }
}
