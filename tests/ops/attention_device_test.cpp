// Tests that the decoding steps of attention give the same results on a device as on the CPU. A decoding step
// processes one token. The op table does not contain decoding steps.
#include <doctest/doctest.h>

#include "ops/elementwise.h"
#include "ops/linear_attention.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"
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
        for (const bool has_features : {false, true}) {
          CAPTURE(s.value_dim);
          const auto state_on = [&](Device where) {
            return make_linear_attention_state(s.batch, s.heads, s.dim, s.value_dim, dtype, where);
          };
          const auto run = [&](Device where, const LinearAttentionState& state) {
            return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
              if (has_features)
                linear_attention_step(q, k, v, state, out, {}, {.q = square(k), .k = square(q)});
              else
                linear_attention_step(q, k, v, state, out, {.feature_map = FeatureMap::squared_relu});
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

TEST_CASE("cuda: a bfloat16 result of a step must be on the device of the inputs") {
  for (const Device device : list_cuda_devices()) {
    const LinearAttentionState state = make_linear_attention_state(1, 2, 4, 4, DType::float32, device);
    const Tensor token = normal({1, 2, 4}, 1, DType::float32).to(device);
    const Tensor out = Tensor::empty({1, 2, 4}, DType::bfloat16, kCpu);
    CHECK_THROWS_WITH_AS(linear_attention_step(token, token, token, state, out),
                         doctest::Contains("out is on cpu, and q is on cuda:0"), ShapeError);
  }
}

TEST_CASE("cuda: softmax attention over a key/value cache gives the outputs of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DType stored : {DType::float64, DType::float32, DType::bfloat16})
      for (const StepSizes& s : kStepSizes) {
        CAPTURE(s.value_dim);
        const DType dtype = get_compute_dtype(stored);
        const auto run = [&](Device where, int64_t past) {
          KeyValueCache cache{normal({s.batch, past + s.length, s.heads, s.dim}, 4, stored).to(where),
                              normal({s.batch, past + s.length, s.heads, s.value_dim}, 5, stored).to(where),
                              past};
          return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
            softmax_attention_step(q, k, v, cache, out);
          });
        };
        for (const int64_t past : {0, 254, 700})
          CHECK(max_difference(run(device, past), run(kCpu, past)) < tolerance(dtype));
        // The cache is a ring buffer. It has fewer entries than there are past tokens.
        const auto run_ring = [&](Device where, const KeyWindow& window) {
          const int64_t capacity = window.max_causal_key_count();
          const auto make_rows = [&](int64_t width, int seed) {
            return transpose(normal({s.batch, s.heads, capacity, width}, seed, stored).to(where), 1, 2);
          };
          KeyValueCache cache{make_rows(s.dim, 4), make_rows(s.value_dim, 5), 1000, {.window = window}};
          return decode(s, where, dtype, [&](auto q, auto k, auto v, auto out) {
            softmax_attention_step(q, k, v, cache, out);
          });
        };
        for (const KeyWindow& window : {KeyWindow{.block_size = 1, .before = 3, .after = 0},
                                        {.block_size = 100, .before = 200, .after = 0},
                                        {.block_size = 1, .before = 300, .after = 0}})
          CHECK(max_difference(run_ring(device, window), run_ring(kCpu, window)) < tolerance(dtype));
        KeyValueCache elsewhere{normal({s.batch, 1, s.heads, s.dim}, 4, stored),
                                normal({s.batch, 1, s.heads, s.value_dim}, 5, stored)};
        CHECK_THROWS_WITH_AS(decode(s, device, dtype,
                                    [&](auto q, auto k, auto v, auto out) {
                                      softmax_attention_step(q, k, v, elsewhere, out);
                                    }),
                             "softmax_attention_step: the cache is on cpu, and q is on cuda:0", ShapeError);
      }
}
