#include "ops/rms_norm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/allocator.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// rms_norm() as a composition of other ops.
Tensor compose_rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& o) {
  Tensor y = div(x, sqrt(add(mean(square(x), -1, true), o.eps)));
  if (weight.defined()) y = mul(y, weight);
  if (!o.gate.defined()) return y;
  switch (o.gate_activation) {
    case GateActivation::silu:
      return mul(y, silu(o.gate));
    case GateActivation::sigmoid:
      return mul(y, sigmoid(o.gate));
    case GateActivation::none:
      break;
  }
  return mul(y, o.gate);
}

}  // namespace

TEST_CASE("silu equals x sigmoid(x)") {
  const Tensor x = normal({37});
  CHECK(max_difference(silu(x), mul(x, sigmoid(x))) < 1e-15);
}

TEST_CASE("rms_norm and its gradients equal a composition of other ops") {
  for (const Device device : list_devices())
    for (const int64_t dim : {1, 7, 32, 65, 300})
      for (const GateActivation activation :
           {GateActivation::none, GateActivation::silu, GateActivation::sigmoid})
        for (const bool has_gate : {false, true}) {
          CAPTURE(dim);
          const auto run = [&](auto function) {
            std::vector<Tensor> leaves;
            for (const Tensor& input : {normal({3, 5, dim}, 1), normal({dim}, 2), normal({3, 5, dim}, 3)})
              leaves.push_back(set_requires_grad(input.to(device).alias()));
            const RmsNormOptions options{has_gate ? leaves[2] : Tensor{}, activation, 0.1};
            const Tensor y = function(leaves[0], leaves[1], options);
            backward(y, normal(y.shape(), 4).to(device));
            std::vector<Tensor> all{detach(y)};
            for (int i = 0; i < (has_gate ? 3 : 2); ++i)
              all.push_back(gradient(leaves[static_cast<size_t>(i)]));
            return all;
          };
          const auto found = run(rms_norm), expected = run(compose_rms_norm);
          for (size_t i = 0; i < found.size(); ++i) CHECK(max_difference(found[i], expected[i]) < 1e-12);
        }
}

TEST_CASE("l2_norm returns rows of the norm `scale`, and 0 for zeros") {
  for (const Device device : list_devices()) {
    const Tensor x = normal({5, 33}).to(device), y = l2_norm(x, 3, 0);
    for (const double norm : sum(square(y), 1).to_vector()) CHECK(norm == doctest::Approx(9));
    const Tensor zeros = set_requires_grad(Tensor::zeros({2, 5}, DType::float64, device).alias());
    const Tensor z = l2_norm(zeros);
    backward(z, Tensor::full({2, 5}, 1, DType::float64, device));
    CHECK(max_difference(detach(z), Tensor::zeros({2, 5}, DType::float64)) == 0);
    CHECK(max_difference(gradient(zeros), Tensor::full({2, 5}, 1000, DType::float64)) < 1e-9);
  }
}

TEST_CASE("rows with two strides give the results of contiguous rows, without a copy") {
  const NoGradScope no_grad;
  for (const Device device : list_devices()) {
    const Tensor packed = normal({2, 5, 3, 4, 7}, 1).to(device), weight = normal({7}, 2).to(device);
    const std::vector<Tensor> parts = unbind(packed, 2);
    const Tensor permuted = permute(packed, {3, 1, 0, 2, 4});
    for (const Tensor& x :
         {parts[0], parts[2], slice(parts[1], 2, 1, 3), permuted, transpose(packed, 0, 4)}) {
      const RmsNormOptions options{.gate = x};
      if (x.size(-1) != 7) {
        CHECK(max_difference(l2_norm(x), l2_norm(contiguous(x))) == 0);
        continue;
      }
      CHECK(max_difference(rms_norm(x, weight, options), rms_norm(contiguous(x), weight, {contiguous(x)})) ==
            0);
    }
    get_device_allocator(device).reset_peak();
    const int64_t before = get_device_allocator(device).stats().active_bytes;
    const Tensor y = l2_norm(parts[1]);
    CHECK(get_device_allocator(device).stats().peak_bytes - before < 2 * y.bytes());
  }
}

TEST_CASE("norms in bfloat16 are computed in float32 and rounded once") {
  for (const Device device : list_devices())
    for (const int64_t dim : {1, 33, 64, 257}) {
      const auto run = [&](DType dtype) {
        std::vector<Tensor> leaves;
        for (int salt = 1; salt <= 2; ++salt)
          leaves.push_back(
              set_requires_grad(normal({5, dim}, salt, DType::bfloat16).to(dtype).to(device).alias()));
        leaves.push_back(set_requires_grad(
            normal({dim}, 3, DType::float32).to(get_compute_dtype(dtype)).to(device).alias()));
        const Tensor y = rms_norm(leaves[0], leaves[2], {leaves[1]}), z = l2_norm(leaves[0], 0.3);
        backward(y, normal(y.shape(), 4, DType::bfloat16).to(dtype).to(device));
        std::vector<Tensor> all{detach(y), detach(z)};
        for (const Tensor& leaf : leaves) all.push_back(gradient(leaf));
        return all;
      };
      const auto found = run(DType::bfloat16), exact = run(DType::float64);
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].dtype() == (i == 4 ? DType::float32 : DType::bfloat16));
        double largest = 1;
        for (const double value : exact[i].to_vector()) largest = std::max(largest, std::abs(value));
        CHECK(max_difference(found[i].to(DType::float64), exact[i]) < (i == 4 ? 1e-5 : 0.004) * largest);
      }
    }
}

TEST_CASE("norms of decoding give the results of the ops and allocate nothing") {
  const NoGradScope no_grad;
  for (const Device device : list_devices())
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor x = normal({3, 4, 37}, 1, dtype).to(device),
                   gate = normal({3, 4, 37}, 2, dtype).to(device), weight = normal({37}, 3, dtype).to(device),
                   out = Tensor::empty_like(x);
      const Tensor expected = rms_norm(x, weight, {gate}), normed = l2_norm(x, 0.5);
      rms_norm_into(x, weight, {gate}, out);
      get_device_allocator(device).reset_peak();
      const int64_t active = get_device_allocator(device).stats().active_bytes;
      rms_norm_into(x, weight, {gate}, out);
      l2_norm_in_place(x, 0.5);
      CHECK(get_device_allocator(device).stats().peak_bytes == active);
      CHECK(max_difference(out, expected) == 0);
      CHECK(max_difference(x, normed) == 0);
      if (dtype != DType::float32) continue;
      const Tensor rounded = Tensor::empty(x.shape(), DType::bfloat16, device);
      rms_norm_into(normal({3, 4, 37}, 1, dtype).to(device), weight, {gate}, rounded);
      CHECK(max_difference(rounded, expected.to(DType::bfloat16)) == 0);
    }
}

TEST_CASE("a NaN changes only its row, and empty inputs have zero gradients of weights") {
  for (const Device device : list_devices()) {
    const Tensor host = normal({3, 37});
    host.data<double>()[40] = std::numeric_limits<double>::quiet_NaN();
    const auto values = rms_norm(host.to(device), {}).to_vector();
    for (size_t i = 0; i < values.size(); ++i) CHECK(std::isnan(values[i]) == (i / 37 == 1));
    const Tensor weight = set_requires_grad(normal({37}).to(device).alias());
    const Tensor y = rms_norm(normal({0, 37}).to(device), weight);
    backward(y, Tensor::zeros({0, 37}, DType::float64, device));
    for (const double value : gradient(weight).to_vector()) CHECK(value == 0);
  }
}

TEST_CASE("errors about arguments of norms contain the mismatched shapes") {
  const Tensor x = normal({2, 3}), weight = normal({3});
  CHECK_THROWS_WITH_AS(rms_norm(x, normal({2})),
                       "rms_norm: the weight float64 (2,) does not match x float64 (2, 3)", ShapeError);
  CHECK_THROWS_WITH(rms_norm(x, weight, {normal({3, 2})}),
                    "rms_norm: the gate float64 (3, 2) does not match x float64 (2, 3)");
  CHECK_THROWS_AS(rms_norm(x, weight.to(DType::float32)), ShapeError);
  CHECK_THROWS_WITH(l2_norm(normal({2, 0})), "l2_norm: x (2, 0) must have rows with at least one element");
  CHECK_THROWS_WITH(l2_norm(x, 1, -1), "l2_norm: eps must not be negative, but is -1");
  CHECK_THROWS_WITH(rms_norm_into(x, weight, {}, normal({2, 3}, 0, DType::bfloat16)),
                    "rms_norm_into: out bfloat16 (2, 3) does not match x float64 (2, 3)");
  CHECK_THROWS_AS(l2_norm_in_place(transpose(x, 0, 1)), ShapeError);
}
