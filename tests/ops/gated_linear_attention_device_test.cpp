// Tests that gated linear attention gives the same results and gradients on a device as on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/cuda/launch_count.h"
#include "tests/ops/gated_inputs.h"
#include "tests/support/devices.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Sizes near the limits of the kernels: a chunk has at most 16 tokens, a state is saved at least every 96
// tokens, a tile has at most 64 lines of 32 elements or 32 lines of 64 elements, and lines with over 256
// elements are not in registers. Chunks of tokens with 1,600 elements are not in shared memory.
const GatedCase kDeviceGatedCases[] = {
    {{2, 1, 1, 1, 1, 1}, TestDecay::head, true, true},
    {{3, 17, 17, 2, 5, 3}, TestDecay::channel, true, true, false, true},
    {{3, 34, 34, 2, 33, 64}, TestDecay::head, true, true, true, true, true, true},
    {{1, 97, 97, 1, 64, 65}, TestDecay::channel, false, false, true, false, true},
    {{2, 193, 193, 1, 65, 31}, TestDecay::head, true, true, false, false, true, true},
    {{1, 100, 100, 2, 16, 130}, TestDecay::none, true, false},
    {{1, 5, 5, 3, 256, 20}, TestDecay::channel, true, true, false, false, false, true},
    {{1, 6, 6, 1, 257, 70}, TestDecay::head, false, true, false, false, false, true},
    {{1, 6, 6, 1, 20, 600}, TestDecay::channel, true, true},
    {{1, 3, 3, 1, 1600, 3}, TestDecay::head, true, true},
    {{2, 4, 4, 1, 2, 1800}, TestDecay::channel, true, true, true, true, true, true},
};

double find_gated_error(const Tensor& found, const Tensor& exact) {
  double magnitude = 1;
  for (const double value : exact.to_vector()) magnitude = std::max(magnitude, std::abs(value));
  return max_difference(found.to(DType::float64), exact.to(DType::float64)) / magnitude;
}

}  // namespace

TEST_CASE("cuda: gated linear attention gives the results and gradients of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const GatedCase& c : kDeviceGatedCases) {
      const GatedTestInputs in = make_gated_inputs(c);
      for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16})
        for (const bool uses_final_state : {true, false}) {
          CAPTURE(describe(c));
          CAPTURE(name_of(dtype));
          const auto run = [&](Device where) {
            return compute_gated(gated_linear_attention, in, {dtype, where, uses_final_state});
          };
          const auto expected = run(kCpu), found = run(device), again = run(device);
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
}

TEST_CASE("cuda: gated linear attention gives the same gradient of an input with and without the others") {
  for (const Device device : list_cuda_devices())
    for (const bool erases : {true, false})
      for (const bool has_beta : {true, false}) {
        const GatedTestInputs in = make_gated_inputs(
            {{2, 50, 50, 2, 33, 40}, TestDecay::channel, erases, true, false, true, has_beta, has_beta});
        const auto all = compute_gated(gated_linear_attention, in, {DType::float32, device});
        for (size_t i = 0; i + 2 < all.size(); ++i) {
          CAPTURE(i);
          const auto one =
              compute_gated(gated_linear_attention, in, {DType::float32, device, true, static_cast<int>(i)});
          REQUIRE(one.size() == 3);
          CHECK(one[2].to_vector() == all[i + 2].to_vector());
        }
      }
}

TEST_CASE("cuda: gated linear attention clears the state at a decay of -infinity, with finite gradients") {
  for (const Device device : list_cuda_devices())
    for (const TestDecay decay : {TestDecay::head, TestDecay::channel})
      for (const DType dtype : {DType::float64, DType::float32}) {
        const GatedTestInputs in = make_gated_inputs({{1, 70, 70, 2, 9, 10}, decay, true, true});
        for (const int64_t t : {0, 33})
          view_token(in.options.log_decay, t).fill(-std::numeric_limits<double>::infinity());
        const auto expected = compute_gated(gated_linear_attention, in, {dtype}),
                   found = compute_gated(gated_linear_attention, in, {dtype, device});
        for (size_t i = 0; i < found.size(); ++i) {
          for (const double value : found[i].to_vector()) CHECK(std::isfinite(value));
          CHECK(find_gated_error(found[i], expected[i]) < (dtype == DType::float64 ? 1e-12 : 1e-5));
        }
      }
}

TEST_CASE("cuda: gated linear attention launches one kernel forward and at most four backward") {
  for (const Device device : list_cuda_devices())
    for (const TestDecay decay : {TestDecay::none, TestDecay::head, TestDecay::channel}) {
      const GatedTestInputs in =
          make_gated_inputs({{2, 20, 20, 2, 64, 64}, decay, true, true}).to(DType::float32, device);
      for (const Tensor& x : in.list()) set_requires_grad(x);
      const int64_t before = cuda::launch_count;
      const auto result = gated_linear_attention(in.q, in.k, in.v, in.options);
      CHECK(cuda::launch_count - before == 1);
      const Tensor g = normal(result.out.shape(), 6, DType::float32).to(device);
      const int64_t middle = cuda::launch_count;
      backward(result.out, g);
      CHECK(cuda::launch_count - middle == (decay == TestDecay::head ? 4 : 3));
    }
}

TEST_CASE("cuda: steps of gated linear attention give the states and the results of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const auto& [dim, value_dim] :
           {std::pair<int64_t, int64_t>{3, 5}, {64, 64}, {33, 1}, {300, 40}, {7, 129}})
        for (const TestDecay decay : {TestDecay::none, TestDecay::fixed, TestDecay::head, TestDecay::channel})
          for (const bool erases : {false, true})
            for (const bool has_beta : {false, true}) {
              GatedCase c{{2, 3, 3, 2, dim, value_dim}, decay, erases, true};
              c.has_beta = has_beta;
              CAPTURE(describe(c));
              const auto run = [&](Device where) {
                const GatedTestInputs in = make_gated_inputs(c).to(dtype, where);
                const Tensor out = Tensor::empty(in.v.shape(), dtype, where);
                run_gated_steps(in, in.options.initial_state, out);
                return std::vector<Tensor>{out.to(kCpu), in.options.initial_state.to(kCpu)};
              };
              const auto expected = run(kCpu), found = run(device);
              for (size_t i = 0; i < found.size(); ++i)
                CHECK(find_gated_error(found[i], expected[i]) < (dtype == DType::float64 ? 1e-12 : 1e-5));
            }
}
