// Tests that gated linear attention gives the same results and gradients on a device as on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/cuda/launch_count.h"
#include "ops/elementwise.h"
#include "ops/gated_linear_attention.h"
#include "ops/sum.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct DeviceGatedCase {
  int64_t batch, length, heads, dim, value_dim;
  int decay_rank = 3;  // 0: no decay
  bool erases = true, has_state = true, reverse = false, has_lengths = false;
};

std::string describe(const DeviceGatedCase& c) {
  return concat_text("length ", c.length, ", dim ", c.dim, ", value_dim ", c.value_dim, ", decay rank ",
                     c.decay_rank, ", erases ", c.erases, ", reverse ", c.reverse, ", lengths ",
                     c.has_lengths);
}

// Sizes near the limits of the kernels: a chunk has at most 16 tokens, a state is saved at least every 96
// tokens, a tile has at most 64 lines of 32 elements or 32 lines of 64 elements, and lines with over 256
// elements are not in registers. Chunks of tokens with 1,600 elements are not in shared memory.
const DeviceGatedCase kDeviceGatedCases[] = {
    {2, 1, 1, 1, 1},
    {3, 17, 2, 5, 3, 4, true, true, false, true},
    {3, 34, 2, 33, 64, 3, true, true, true, true},
    {1, 97, 1, 64, 65, 4, false, false, true},
    {2, 193, 1, 65, 31, 3},
    {1, 100, 2, 16, 130, 0, true, false},
    {1, 5, 3, 256, 20, 4},
    {1, 6, 1, 257, 70, 3, false},
    {1, 6, 1, 20, 600, 4},
    {1, 3, 1, 1600, 3, 3},
    {2, 4, 1, 2, 1800, 4, true, true, true, true},
};

// Leaves on a device. Log decays and states have the compute dtype.
struct GatedLeaves {
  std::vector<Tensor> list;
  Tensor q, k, v;
  GatedLinearAttentionOptions options;

  // If `differentiable` is not negative, only the leaf with this index requires a gradient.
  GatedLeaves(const DeviceGatedCase& c, Device device, DType dtype, int differentiable = -1) {
    const auto add_leaf = [&](const Tensor& x, DType as) {
      list.push_back(x.to(dtype).to(as).to(device).alias());
      if (differentiable < 0 || differentiable + 1 == static_cast<int>(list.size()))
        set_requires_grad(list.back());
      return list.back();
    };
    const DType compute = get_compute_dtype(dtype);
    const Shape keys{c.batch, c.length, c.heads, c.dim};
    const double scale = 1 / std::sqrt(static_cast<double>(c.dim));
    q = add_leaf(mul(normal(keys, 1), scale), dtype);
    k = add_leaf(mul(normal(keys, 2), scale), dtype);
    v = add_leaf(normal({c.batch, c.length, c.heads, c.value_dim}, 3), dtype);
    if (c.erases) options.erase = add_leaf(mul(normal(keys, 2), 0.7 * scale), dtype);
    Shape decays{c.heads};
    if (c.decay_rank > 1) decays = {c.batch, c.length, c.heads};
    if (c.decay_rank > 3) decays = keys;
    if (c.decay_rank > 0) options.log_decay = add_leaf(uniform(decays, -0.4, 0, 4), compute);
    if (c.has_state)
      options.initial_state = add_leaf(normal({c.batch, c.heads, c.dim, c.value_dim}, 5), compute);
    options.reverse = c.reverse;
    if (c.has_lengths) {
      options.lengths = Tensor::zeros({c.batch}, DType::int64);
      for (int64_t n = 0; n < c.batch; ++n)
        options.lengths.data<int64_t>()[n] = n == 1 ? 0 : c.length - (n == 0 ? 1 : c.length / 2);
      options.lengths = options.lengths.to(device);
    }
  }
};

// Returns both results and the gradients of all leaves, on the CPU.
std::vector<Tensor> compute_gated_outcome(const GatedLeaves& in, bool uses_final_state = true) {
  const auto result = gated_linear_attention(in.q, in.k, in.v, in.options);
  const Device device = in.q.device();
  const DType compute = get_compute_dtype(in.q.dtype());
  const Tensor g = normal(result.out.shape(), 6).to(in.q.dtype()).to(compute).to(device),
               gstate = normal(result.final_state.shape(), 7).to(compute).to(device);
  Tensor total = sum(mul(cast(result.out, compute), g));
  if (uses_final_state) total = add(total, sum(mul(result.final_state, gstate)));
  backward(total);
  std::vector<Tensor> all{detach(result.out).to(kCpu), detach(result.final_state).to(kCpu)};
  for (const Tensor& leaf : in.list)
    if (requires_grad(leaf)) all.push_back(gradient(leaf).to(kCpu));
  return all;
}

double find_gated_error(const Tensor& found, const Tensor& exact) {
  double magnitude = 1;
  for (const double value : exact.to_vector()) magnitude = std::max(magnitude, std::abs(value));
  return max_difference(found.to(DType::float64), exact.to(DType::float64)) / magnitude;
}

}  // namespace

TEST_CASE("cuda: gated linear attention gives the results and gradients of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DeviceGatedCase& c : kDeviceGatedCases)
      for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16})
        for (const bool uses_final_state : {true, false}) {
          CAPTURE(describe(c));
          CAPTURE(name_of(dtype));
          const auto expected = compute_gated_outcome({c, kCpu, dtype}, uses_final_state),
                     found = compute_gated_outcome({c, device, dtype}, uses_final_state),
                     again = compute_gated_outcome({c, device, dtype}, uses_final_state);
          REQUIRE(found.size() == expected.size());
          for (size_t i = 0; i < found.size(); ++i) {
            CAPTURE(i);
            CHECK(find_gated_error(found[i], expected[i]) < (dtype == DType::float64   ? 1e-12
                                                             : dtype == DType::float32 ? 1e-5
                                                                                       : 1e-2));
            CHECK(found[i].to_vector() == again[i].to_vector());
          }
        }
}

TEST_CASE("cuda: gated linear attention gives the same gradient of an input with and without the others") {
  for (const Device device : list_cuda_devices())
    for (const bool erases : {true, false}) {
      const DeviceGatedCase c{2, 35, 2, 33, 40, 4, erases, true, false, true};
      const GatedLeaves all(c, device, DType::float32);
      compute_gated_outcome(all);
      for (size_t i = 0; i < all.list.size(); ++i) {
        CAPTURE(i);
        const GatedLeaves one(c, device, DType::float32, static_cast<int>(i));
        compute_gated_outcome(one);
        CHECK(gradient(one.list[i]).to(kCpu).to_vector() == gradient(all.list[i]).to(kCpu).to_vector());
      }
    }
}

TEST_CASE("cuda: gated linear attention clears the state at a decay of -infinity, with finite gradients") {
  for (const Device device : list_cuda_devices())
    for (const int decay_rank : {3, 4})
      for (const DType dtype : {DType::float64, DType::float32}) {
        const DeviceGatedCase c{1, 70, 2, 9, 10, decay_rank};
        const auto run = [&](Device where) {
          const GatedLeaves in(c, where, dtype);
          const Tensor decay = detach(in.options.log_decay);
          for (const int64_t t : {0, 33})
            decay.view({decay.strides()[1]}, {1}, t * decay.strides()[1])
                .fill(-std::numeric_limits<double>::infinity());
          return compute_gated_outcome(in);
        };
        const auto expected = run(kCpu), found = run(device);
        for (size_t i = 0; i < found.size(); ++i) {
          for (const double value : found[i].to_vector()) CHECK(std::isfinite(value));
          CHECK(find_gated_error(found[i], expected[i]) < (dtype == DType::float64 ? 1e-12 : 1e-5));
        }
      }
}

TEST_CASE("cuda: gated linear attention launches one kernel forward and at most four backward") {
  for (const Device device : list_cuda_devices())
    for (const int decay_rank : {0, 3, 4}) {
      const GatedLeaves in({2, 20, 2, 64, 64, decay_rank}, device, DType::float32);
      const int64_t before = cuda::launch_count;
      const auto result = gated_linear_attention(in.q, in.k, in.v, in.options);
      CHECK(cuda::launch_count - before == 1);
      const Tensor g = normal(result.out.shape(), 6, DType::float32).to(device);
      const int64_t middle = cuda::launch_count;
      backward(result.out, g);
      CHECK(cuda::launch_count - middle == (decay_rank == 3 ? 4 : 3));
    }
}

TEST_CASE("cuda: steps of gated linear attention give the states and the results of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const auto& [dim, value_dim] :
           {std::pair<int64_t, int64_t>{3, 5}, {64, 64}, {33, 1}, {300, 40}, {7, 129}})
        for (const int decay_rank : {0, 1, 3, 4})
          for (const bool erases : {false, true}) {
            CAPTURE(dim);
            CAPTURE(value_dim);
            CAPTURE(decay_rank);
            const DeviceGatedCase c{2, 3, 2, dim, value_dim, decay_rank, erases};
            const auto run = [&](Device where) {
              const GatedLeaves in(c, where, dtype);
              const Tensor state = detach(in.options.initial_state).clone(),
                           out = Tensor::empty(in.v.shape(), dtype, where);
              for (int64_t t = 0; t < c.length; ++t) {
                const auto token = [t](const Tensor& x) {
                  if (!x.defined() || x.rank() == 1) return x.defined() ? detach(x) : x;
                  Shape shape{x.size(0)}, strides{x.strides()[0]};
                  for (int i = 2; i < x.rank(); ++i) {
                    shape.append(x.size(i));
                    strides.append(x.strides()[i]);
                  }
                  return detach(x).view(shape, strides, t * x.strides()[1]);
                };
                gated_linear_attention_step(
                    token(in.q), token(in.k), token(in.v),
                    {.log_decay = token(in.options.log_decay), .erase = token(in.options.erase)}, state,
                    token(out));
              }
              return std::vector<Tensor>{out.to(kCpu), state.to(kCpu)};
            };
            const auto expected = run(kCpu), found = run(device);
            for (size_t i = 0; i < found.size(); ++i)
              CHECK(find_gated_error(found[i], expected[i]) < (dtype == DType::float64 ? 1e-12 : 1e-5));
          }
}
