// Tests of decoding one token at a time and of LSH buckets on a device. The op table has no cases for them.
#include <doctest/doctest.h>

#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/softmax_attention.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct StepSizes {
  int64_t batch, length, heads, dim, value_dim;
};
const StepSizes kStepSizes[] = {{2, 3, 2, 3, 5},   {1, 4, 3, 64, 32}, {3, 2, 1, 33, 129}, {1, 2, 1, 5, 300},
                                {5, 3, 7, 32, 32}, {2, 2, 3, 50, 16}, {1, 2, 2, 9, 128}};

// Returns token t of x (batch, length, heads, dim) as a view (batch, heads, dim).
Tensor token(const Tensor& x, int64_t t) {
  return x.view({x.size(0), x.size(2), x.size(3)}, {x.strides()[0], x.strides()[2], x.strides()[3]},
                t * x.strides()[1]);
}

// Calls step(q, k, v, out) for each token in order, and returns the outputs of all tokens.
template <class Step>
Tensor decode(const StepSizes& s, Device device, DType dtype, Step&& step) {
  auto input = [&](int64_t dim, int salt) {
    return normal({s.batch, s.length, s.heads, dim}, salt, dtype).to(device);
  };
  const Tensor q = input(s.dim, 1), k = input(s.dim, 2), v = input(s.value_dim, 3);
  const Tensor out = Tensor::empty({s.batch, s.length, s.heads, s.value_dim}, dtype, device);
  for (int64_t t = 0; t < s.length; ++t) step(token(q, t), token(k, t), token(v, t), token(out, t));
  return out.to(kCpu);
}

double tolerance(DType dtype) {
  return dtype == DType::float64 ? 1e-12 : 1e-5;
}

}  // namespace

TEST_CASE("cuda: steps of linear attention give the state and the outputs of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const StepSizes& s : kStepSizes)
        for (const FeatureMap map : {FeatureMap::elu_plus_one, FeatureMap::squared_relu}) {
          CAPTURE(s.value_dim);
          const auto state_on = [&](Device where) {
            return make_linear_attention_state(s.batch, s.heads, s.dim, s.value_dim, dtype, where);
          };
          const auto run = [&](Device where, const LinearAttentionState& state) {
            return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
              linear_attention_step(q, k, v, state, out, {.feature_map = map});
            });
          };
          const LinearAttentionState here = state_on(kCpu), there = state_on(device);
          CHECK(max_difference(run(device, there), run(kCpu, here)) < tolerance(dtype));
          CHECK(max_difference(there.kv.to(kCpu), here.kv) < tolerance(dtype));
          CHECK(max_difference(there.key_sum.to(kCpu), here.key_sum) < tolerance(dtype));
        }
}

TEST_CASE("steps of linear attention can write bfloat16 results") {
  for (const Device device : list_devices())
    for (const StepSizes& s : kStepSizes) {
      const auto run = [&](DType dtype) {
        const LinearAttentionState state =
            make_linear_attention_state(s.batch, s.heads, s.dim, s.value_dim, DType::float32, device);
        const Tensor rounded = Tensor::empty({s.batch, s.heads, s.value_dim}, DType::bfloat16, device);
        return decode(s, device, DType::float32, [&](auto q, auto k, auto v, auto out) {
          linear_attention_step(q, k, v, state, dtype == DType::bfloat16 ? rounded : out);
          if (dtype == DType::bfloat16) out.copy_from(rounded);
        });
      };
      CHECK(run(DType::bfloat16).to_vector() == run(DType::float32).to(DType::bfloat16).to_vector());
    }
}

TEST_CASE("cuda: softmax attention over a key/value cache gives the outputs of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const StepSizes& s : kStepSizes) {
        CAPTURE(s.value_dim);
        const auto run = [&](Device where, int64_t past) {
          KeyValueCache cache{normal({s.batch, past + s.length, s.heads, s.dim}, 4, dtype).to(where),
                              normal({s.batch, past + s.length, s.heads, s.value_dim}, 5, dtype).to(where),
                              past};
          return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
            softmax_attention_step(q, k, v, cache, out);
          });
        };
        for (const int64_t past : {0, 254, 700})
          CHECK(max_difference(run(device, past), run(kCpu, past)) < tolerance(dtype));
        // The cache is a ring with fewer entries than past tokens.
        const auto run_ring = [&](Device where, const KeyWindow& window) {
          const int64_t capacity = window.span();
          KeyValueCache cache{normal({s.batch, capacity, s.heads, s.dim}, 4, dtype).to(where),
                              normal({s.batch, capacity, s.heads, s.value_dim}, 5, dtype).to(where),
                              1000,
                              {.window = window}};
          return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
            softmax_attention_step(q, k, v, cache, out);
          });
        };
        for (const KeyWindow& window : {KeyWindow{.block = 1, .before = 3, .after = 0},
                                        {.block = 100, .before = 200, .after = 0},
                                        {.block = 1, .before = 300, .after = 0}})
          CHECK(max_difference(run_ring(device, window), run_ring(kCpu, window)) < tolerance(dtype));
      }
}

TEST_CASE("cuda: LSH buckets equal the buckets on the CPU") {
  struct Case {
    int64_t length, dim, buckets;
    LshOptions::Hash hash;
    bool share, with_lengths;
  };
  constexpr auto kRotations = LshOptions::Hash::rotations, kHyperplanes = LshOptions::Hash::hyperplanes;
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const Case& c : {Case{70, 5, 6, kRotations, false, true},
                            {300, 33, 144, kRotations, false, false},
                            {150, 64, 150, kHyperplanes, false, true},
                            {90, 3, 0, kRotations, true, false},
                            {20, 3, 0, kRotations, false, true},
                            {133, 3, 0, kRotations, true, true},
                            {0, 3, 0, kRotations, false, false}}) {
        CAPTURE(c.length);
        LshOptions options{
            .rounds = 3, .chunk_length = c.share ? 1 : 32, .buckets = c.buckets, .hash = c.hash};
        options.share_rotations = c.share;
        if (c.with_lengths) options.key_lengths = Tensor::from<int64_t>({c.length, 0, c.length / 2}, {3});
        const Tensor q = normal({3, c.length, 2, c.dim}, 1, dtype);
        const RandomStream stream(3, "hash", 5);
        const Tensor here = lsh_buckets(q, options, stream);
        const Tensor there = lsh_buckets(q.to(device), options, stream);
        const Tensor rounded = q.to(DType::bfloat16);
        const auto rounded_buckets = lsh_buckets(rounded.to(DType::float32), options, stream).to_vector();
        CHECK(lsh_buckets(rounded.to(device), options, stream).to_vector() == rounded_buckets);
        CHECK(lsh_buckets(rounded, options, stream).to_vector() == rounded_buckets);
        CHECK(there.device() == device);
        CHECK(there.to_vector() == here.to_vector());
        if (c.length > 32) CHECK(here.to_vector() != std::vector<double>(here.to_vector().size(), 0.0));
      }
}
