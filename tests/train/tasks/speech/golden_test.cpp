// Tests that compare the CTC loss and the LSTM in float64 with PyTorch. tests/golden/README.md describes the
// keys of the files.
#include <doctest/doctest.h>

#include "models/layers/lstm.h"
#include "ops/ctc_loss.h"
#include "ops/reduce.h"
#include "tests/support/random.h"
#include "tests/train/golden.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("CTC equals PyTorch in value and gradient") {
  const SafetensorsFile file = open_golden_file("ctc");
  for (const std::string group : {"plain", "sharp", "last_blank"}) {
    CAPTURE(group);
    auto read = [&](const char* key) { return file.read(group + "." + key); };
    const CtcOptions options{.blank = group == "last_blank" ? 7 : 0};
    auto run = [&](DType dtype, double tolerance) {
      const Tensor logits = set_requires_grad(read("logits").to(dtype));
      const CtcLoss result = ctc_loss(logits, read("frames"), read("labels"), read("label_lengths"), options);
      CHECK(result.infeasible_count == 0);
      const auto losses = result.losses.to_vector(), expected = read("losses").to_vector();
      for (size_t b = 0; b < losses.size(); ++b)
        CHECK(losses[b] == doctest::Approx(expected[b]).epsilon(tolerance));
      // The file contains the gradient of the sum of the losses, and result.loss is the mean.
      const auto batch = static_cast<double>(losses.size());
      backward(result.loss, Tensor::full({}, batch, dtype));
      CHECK(max_difference(gradient(logits).to(DType::float64), read("gradient")) < tolerance);
    };
    run(DType::float64, 1e-12);
    run(DType::float32, 1e-5);
  }
}

TEST_CASE("LSTM stacks equal PyTorch on packed sequences, in value and gradient") {
  const SafetensorsFile file = open_golden_file("lstm");
  for (const std::string group : {"one", "both", "stack"}) {
    CAPTURE(group);
    auto read = [&](const std::string& key) { return file.read(group + "." + key); };
    auto run = [&](DType dtype, double tolerance) {
      LstmStack model({.input_width = 5,
                       .hidden = 7,
                       .layers = group == "stack" ? 3 : 1,
                       .bidirectional = group != "one"});
      model.convert(dtype);
      for (const auto& [name, parameter] : model.parameters()) parameter.copy_from(read(name));
      const Tensor x = set_requires_grad(read("x").to(dtype));
      const Tensor result = model.forward(x, read("lengths"), {});
      CHECK(max_difference(detach(result).to(DType::float64), read("result")) < tolerance);
      backward(result, read("cotangent").to(dtype));
      CHECK(max_difference(gradient(x).to(DType::float64), read("gradient.x")) < tolerance);
      for (const auto& [name_bound, parameter] : model.parameters()) {
        const auto& name = name_bound;  // clang 14 cannot capture structured bindings
        CAPTURE(name);
        CHECK(max_difference(gradient(parameter).to(DType::float64), read("gradient." + name)) < tolerance);
      }
    };
    run(DType::float64, 1e-12);
    run(DType::float32, 1e-5);
  }
}
