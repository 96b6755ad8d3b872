// One token at a time on the device, as on the CPU.
#include <doctest/doctest.h>

#include "ops/linear_attention.h"
#include "ops/softmax_attention.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct Sizes {
  int64_t batch, length, heads, dim, value_dim;
};
const Sizes kSizes[] = {{2, 3, 2, 3, 5}, {1, 4, 3, 64, 32}, {3, 2, 1, 33, 129}, {1, 2, 1, 5, 300}};

// The tokens of x (batch, length, heads, dim), without copying.
Tensor token(const Tensor& x, int64_t t) {
  return x.view({x.size(0), x.size(2), x.size(3)}, {x.strides()[0], x.strides()[2], x.strides()[3]},
                t * x.strides()[1]);
}

// step(q, k, v, out) for every token; the outputs.
template <class Step>
Tensor decode(const Sizes& s, Device device, DType dtype, Step&& step) {
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

TEST_CASE("cuda: linear attention step by step leaves the state and the outputs of the CPU") {
  for (const Device device : other_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const Sizes& s : kSizes)
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

TEST_CASE("cuda: softmax attention over a key/value cache gives the outputs of the CPU") {
  for (const Device device : other_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const Sizes& s : kSizes) {
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
      }
}
