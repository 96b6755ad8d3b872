// Tests that compare gated_linear_attention() with fla and mamba, in float64: values, final states and all
// gradients. tests/golden/README.md describes the keys of gated.safetensors.
#include <doctest/doctest.h>

#include <cmath>

#include "models/layers/module.h"
#include "ops/elementwise.h"
#include "ops/gated_linear_attention.h"
#include "ops/sum.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"
#include "tests/train/golden.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct GatedCase {
  const char* name;
  bool delta = false, scales_queries = true, has_state = true;
  const char* log_decay = nullptr;  // key of the log decays
};

constexpr GatedCase kGatedCases[] = {
    {.name = "gated_delta_rule", .delta = true, .log_decay = "log_decay"},
    {.name = "kda", .delta = true, .log_decay = "channel_log_decay"},
    {.name = "gla", .log_decay = "channel_log_decay"},
    {.name = "simple_gla", .log_decay = "log_decay"},
    {.name = "delta_rule", .delta = true},
    {.name = "ssd", .scales_queries = false, .log_decay = "log_decay"},
    {.name = "retention", .has_state = false},
};

// Returns the decays of RetNet, (heads,).
Tensor make_retention_log_decay(int64_t heads) {
  const Tensor log_decay = Tensor::empty({heads}, DType::float64);
  for (int64_t h = 0; h < heads; ++h)
    log_decay.data<double>()[h] = std::log1p(-std::exp2(-5 - static_cast<double>(h)));
  return log_decay;
}

void compare_gated_case(const GatedCase& one, Device device) {
  const SafetensorsFile file = open_golden_file("gated");
  NamedTensors inputs;
  const auto input = [&](const std::string& key) {
    inputs.emplace_back(key, set_requires_grad(file.read(key).to(device).clone()));
    return inputs.back().second;
  };
  const auto difference = [&](const Tensor& actual, const std::string& key) {
    const Tensor expected = file.read(one.name + ("." + key));
    REQUIRE(actual.shape() == expected.shape());
    return max_difference(actual.to(kCpu), expected) / max_difference(expected, Tensor::zeros_like(expected));
  };
  const Tensor q = input("q"), k = input("k"), v = input("v");
  GatedLinearAttentionOptions options;
  if (one.log_decay) options.log_decay = input(one.log_decay);
  if (!one.has_state) options.log_decay = make_retention_log_decay(q.size(2)).to(device);
  if (one.delta) options.beta = input("beta"), options.erase = k;
  if (one.has_state) options.initial_state = input("initial_state");
  const Tensor query = one.scales_queries ? mul(q, 1 / std::sqrt(static_cast<double>(q.size(3)))) : q;
  const auto [out, state] = gated_linear_attention(query, k, v, options);
  CHECK(difference(detach(out), "out") < 1e-12);
  Tensor total = sum(mul(out, file.read("cotangent").to(device)));
  if (one.has_state) {
    CHECK(difference(detach(state), "final_state") < 1e-12);
    total = add(total, sum(mul(state, file.read("cotangent_state").to(device))));
  }
  backward(total);
  for (const auto& [name, tensor] : inputs) {
    const std::string& key = name;  // clang 14 cannot capture structured bindings
    CAPTURE(key);
    CHECK(difference(gradient(tensor), "gradient." + key) < 1e-12);
  }
}

}  // namespace

TEST_CASE("gated_linear_attention() equals the recurrences of fla and the chunks of mamba") {
  for (const GatedCase& one : kGatedCases)
    for (const Device device : list_devices()) {
      const std::string name = one.name;
      const bool on_cpu = device == kCpu;
      CAPTURE(name);
      CAPTURE(on_cpu);
      compare_gated_case(one, device);
    }
}
