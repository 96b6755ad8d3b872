#include "models/encoder/reversible.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/allocator.h"
#include "models/autoregressive_model.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const ForwardContext kTraining{.training = true, .seed = 5, .step = 2};

// Attention with two buckets. The bucket of a position is a low-order bit of the query at this position. In a
// replay, rounding errors can change this bit. If `keep` is true, a replay reuses the buckets of the forward
// pass.
class RoundingAttention final : public Attention {
 public:
  explicit RoundingAttention(bool keep) : keep_(keep) {}
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask&,
                 const ForwardContext& context, const std::string& name) const override {
    const auto decide = [&] {
      const Tensor buckets = Tensor::zeros({q.size(0), q.size(1), 1, 1}, q.dtype());
      for (int64_t b = 0; b < q.size(0); ++b)
        for (int64_t t = 0; t < q.size(1); ++t) {
          const double value = q.alias({1}, {1}, b * q.strides()[0] + t * q.strides()[1]).item();
          const bool odd = std::fmod(std::floor(value * 0x1p52), 2) != 0;
          buckets.view({1}, {1}, b * q.size(1) + t).fill(odd ? 1.5 : -0.5);
        }
      return buckets;
    };
    const Tensor buckets =
        keep_ && context.decisions ? context.decisions->get_or_decide(name, decide) : decide();
    return mul(add(mul(q, buckets), k), v);
  }

 private:
  bool keep_;
};

AttentionKind rounding_kind(const std::string& name, bool keep) {
  return {.name = name,
          .help = "",
          .capabilities = {.causal = true},
          .options = {},
          .make = [keep](const OptionValues&, const AttentionSetup&) {
            return std::make_unique<RoundingAttention>(keep);
          }};
}

void register_test_kinds() {
  static const bool registered = [] {
    register_attention_kind(rounding_kind("test-deciding", true));
    register_attention_kind(rounding_kind("test-forgetful", false));
    AttentionKind irreversible = rounding_kind("test-irreversible", true);
    irreversible.capabilities.reversible = make_unsupported("it is a test");
    register_attention_kind(irreversible);
    return true;
  }();
  CHECK(registered);
}

std::vector<std::string> tested_kinds() {
  register_test_kinds();
  std::vector<std::string> names = reversible_kinds();
  names.emplace_back("test-deciding");
  return names;
}

EncoderOptions reversible_options(const std::string& attention, int64_t layers) {
  EncoderOptions options = small_options(attention).encoder;
  options.layers = layers;
  options.dropout = 0.2;
  options.attention_dropout = find_attention_kind(attention).capabilities.weight_dropout ? 0.2 : 0;
  options.pre_norm = true;
  options.reversible = true;
  options.max_length = 64;
  return options;
}

// The result of a forward pass, the gradients of all parameters and, as the last element, the gradient of the
// input. Undefined gradients are stored as zeros.
struct Pass {
  std::vector<double> result;
  std::vector<std::vector<double>> gradients;
};

Pass pass_of(const Encoder& encoder, const Tensor& x, const std::function<Tensor()>& forward) {
  Pass pass;
  std::vector<Tensor> leaves = strip_names(encoder.parameters());
  leaves.push_back(x);
  const Tensor y = forward();
  pass.result = y.to_vector();
  backward(y, normal(y.shape(), 8));
  for (const Tensor& leaf : leaves) {
    pass.gradients.push_back(gradient(leaf).defined()
                                 ? gradient(leaf).to_vector()
                                 : std::vector<double>(static_cast<size_t>(leaf.numel())));
    set_gradient(leaf, {});
  }
  return pass;
}

// Computes the forward pass of an encoder with reversible layers without run_reversible(), so that the tape
// stores all activations.
Tensor stored_forward(const Encoder& encoder, const Tensor& x, const ForwardContext& pass) {
  StoredDecisions decisions;
  ForwardContext context = pass;
  context.decisions = &decisions;
  Tensor x1 = encoder.options().doubled_input ? x : Tensor::zeros(x.shape(), x.dtype()), x2 = x;
  for (const auto& layer : encoder.layers) {
    x1 = add(x1, layer->run_branch(ResidualBranch::attention, x2, {}, context, {}, 0));
    const Tensor rows = reshape(x1, {x1.size(0) * x1.size(1), x1.size(2)});
    x2 = add(x2,
             reshape(layer->run_branch(ResidualBranch::feedforward, rows, {}, context, {}, 0), x1.shape()));
  }
  return encoder.norm.forward(concat({x1, x2}, -1));
}

// Compares each gradient in `b` with the same gradient in `a`. The relative error is the largest difference
// divided by the largest absolute element in `a`, or by 1e-4 if that element is smaller. Returns the maximum
// of the relative errors of all gradients.
double gradient_error(const Pass& a, const Pass& b) {
  double worst = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    double largest = 1e-4, error = 0;
    for (size_t j = 0; j < a.gradients[i].size(); ++j) {
      largest = std::max(largest, std::abs(a.gradients[i][j]));
      error = std::max(error, std::abs(a.gradients[i][j] - b.gradients[i][j]));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

struct Comparison {
  bool same_result;
  double gradient_error;
};
Comparison reversible_against_stored(const EncoderOptions& options) {
  Encoder encoder(options);
  encoder.initialize(3);
  encoder.convert(DType::float64);
  const Tensor x = set_requires_grad(normal({3, 7, options.width()}, 4));
  const Pass stored = pass_of(encoder, x, [&] { return stored_forward(encoder, x, kTraining); });
  const Pass found = pass_of(encoder, x, [&] { return encoder.forward(x, {}, kTraining); });
  return {stored.result == found.result, gradient_error(stored, found)};
}

// Returns the peak memory in bytes of a forward and a backward pass, without parameters and their gradients.
int64_t activation_peak(const EncoderOptions& options) {
  Encoder encoder(options);
  encoder.initialize(3);
  const Tensor x = set_requires_grad(normal({2, 64, options.width()}, 4, DType::float32));
  int64_t peak = 0;
  // The third pass is measured, because the first two passes also allocate or copy gradients.
  for (int run = 0; run < 3; ++run) {
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    const Tensor y = encoder.forward(x, {}, kTraining);
    backward(y, Tensor::full(y.shape(), 1));
    peak = get_device_allocator().stats().peak_bytes - before;
  }
  return peak;
}

// Returns the size in bytes of the StoredDecisions of one forward pass with a (2, 64, width) input.
int64_t decision_bytes(const EncoderOptions& options) {
  Encoder encoder(options);
  encoder.initialize(3);
  StoredDecisions decisions;
  ForwardContext context = kTraining;
  context.decisions = &decisions;
  encoder.forward(normal({2, 64, options.width()}, 4, DType::float32), {}, context);
  return decisions.bytes();
}

}  // namespace

TEST_CASE("reversible gradients equal the gradients of stored activations, with dropout") {
  for (const std::string& attention : tested_kinds())
    for (const int64_t layers : {1, 6, 24}) {
      CAPTURE(attention);
      CAPTURE(layers);
      EncoderOptions options = reversible_options(attention, layers);
      options.doubled_input = layers != 6;
      const Comparison comparison = reversible_against_stored(options);
      MESSAGE(attention << ", depth " << layers << ": error " << comparison.gradient_error);
      CHECK(comparison.same_result);
      CHECK(comparison.gradient_error < 1e-9);
    }
}

TEST_CASE("control: a replay that decides again gives wrong gradients") {
  register_test_kinds();
  const Comparison comparison = reversible_against_stored(reversible_options("test-forgetful", 6));
  MESSAGE("decisions repeated: gradient error " << comparison.gradient_error);
  CHECK(comparison.same_result);
  CHECK(comparison.gradient_error > 1e-2);
}

TEST_CASE("control: a replay that draws other random numbers gives wrong gradients") {
  Encoder encoder(reversible_options("linear", 6));
  encoder.initialize(3);
  encoder.convert(DType::float64);
  const Tensor x = set_requires_grad(normal({3, 7, encoder.options().width()}, 4));
  const Pass stored = pass_of(encoder, x, [&] { return stored_forward(encoder, x, kTraining); });
  const auto forward = [&](bool replays_draws) {
    const ReplayContext context(kTraining);
    auto blocks = make_reversible_blocks(encoder.layers, 1, 7, {}, context);
    if (!replays_draws) {
      // The second call of each branch g, which is the replay, draws the random numbers of another step.
      const ForwardContext other{.training = true, .seed = 5, .step = 3};
      const auto others = make_reversible_blocks(encoder.layers, 1, 7, {}, ReplayContext(other));
      for (size_t i = 0; i < blocks.size(); ++i) {
        const auto first = blocks[i].branches[1].function, second = others[i].branches[1].function;
        blocks[i].branches[1].function = [first, second, calls = std::make_shared<int>(0)](const Tensor& in,
                                                                                           int64_t row) {
          return (*calls)++ == 0 ? first(in, row) : second(in, row);
        };
      }
    }
    const Tensor rows = reshape(x, {21, x.size(2)});
    return encoder.norm.forward(reshape(run_reversible(blocks, rows, rows), {3, 7, 2 * x.size(2)}));
  };
  CHECK(gradient_error(stored, pass_of(encoder, x, [&] { return forward(true); })) < 1e-9);
  const Pass wrong = pass_of(encoder, x, [&] { return forward(false); });
  CHECK(wrong.result == stored.result);
  MESSAGE("other random numbers: gradient error " << gradient_error(stored, wrong));
  CHECK(gradient_error(stored, wrong) > 1e-2);
}

TEST_CASE("backward() reconstructs the inputs of a reversible stack of any depth") {
  for (const DType dtype : {DType::float64, DType::float32})
    for (const int64_t layers : {1, 6, 24, 48}) {
      Encoder encoder(reversible_options("linear", layers));
      encoder.initialize(3);
      encoder.convert(dtype);
      const ReplayContext context(kTraining);
      auto blocks = make_reversible_blocks(encoder.layers, 1, 7, {}, context);
      const Shape shape{21, encoder.options().width()};
      const Tensor x1 = set_requires_grad(normal(shape, 1, dtype)),
                   x2 = set_requires_grad(normal(shape, 2, dtype));
      // The inputs of branch f of block 0, in the order of the calls: first in the forward pass, then in the
      // backward pass.
      std::vector<Tensor> inputs;
      const auto first = blocks[0].branches[0].function;
      blocks[0].branches[0].function = [&](const Tensor& rows, int64_t row) {
        inputs.push_back(detach(rows).clone());
        return first(rows, row);
      };
      const Tensor y = run_reversible(blocks, x1, x2);
      backward(sum(y));
      REQUIRE(inputs.size() == 2);
      CHECK(max_difference(inputs[0], x2) == 0);
      const double error = max_difference(inputs[1], x2);
      MESSAGE("depth " << layers << ", " << std::string(name_of(dtype)) << ": inversion error " << error);
      CHECK(error > 0);  // the input in the backward pass is reconstructed, not stored
      CHECK(error < (dtype == DType::float64 ? 1e-10 : 1e-3));
      const int64_t width = shape[1];
      CHECK(max_difference(slice(y, 1, width, 2 * width), x2) > 1e-2);
    }
}

TEST_CASE("the memory of a reversible stack grows with the depth only by the stored decisions") {
  for (const std::string& attention : tested_kinds()) {
    CAPTURE(attention);
    const int64_t bytes = decision_bytes(reversible_options(attention, 1));
    const int64_t shallow = activation_peak(reversible_options(attention, 2));
    for (const int64_t layers : {4, 8, 16, 32})
      CHECK(activation_peak(reversible_options(attention, layers)) - shallow == (layers - 2) * bytes);
  }
  // Negative control: without reversible layers, each layer stores more than 8 tensors of the size of its
  // output.
  EncoderOptions stored = reversible_options("linear", 2);
  stored.reversible = false;
  const int64_t shallow = activation_peak(stored);
  stored.layers = 4;
  CHECK(activation_peak(stored) - shallow > 2 * 8 * 2 * 64 * stored.width() * 4);
}

TEST_CASE("the length of the tape of a reversible model does not depend on the number of layers") {
  int64_t sizes[2];
  for (const int64_t layers : {1, 16}) {
    Encoder encoder(reversible_options("softmax", layers));
    encoder.initialize(3);
    const Tensor x = set_requires_grad(normal({2, 5, encoder.options().width()}, 4, DType::float32));
    const Tensor y = encoder.forward(x, {}, kTraining);
    sizes[layers > 1] = tape_size();
  }
  CHECK(sizes[0] == sizes[1]);
}

TEST_CASE("recomputed layers repeat their decisions") {
  for (const std::string& attention : tested_kinds()) {
    EncoderOptions options = reversible_options(attention, 4);
    options.reversible = false;
    std::vector<Pass> passes;
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      Encoder encoder(options);
      encoder.initialize(3);
      encoder.convert(DType::float64);
      const Tensor x = set_requires_grad(normal({3, 7, options.width()}, 4));
      passes.push_back(pass_of(encoder, x, [&] { return encoder.forward(x, {}, kTraining); }));
    }
    CHECK(passes[0].result == passes[1].result);
    CHECK(gradient_error(passes[0], passes[1]) < 1e-12);
  }
}

TEST_CASE("invalid options of reversible encoders are errors") {
  register_test_kinds();
  EncoderOptions options = reversible_options("linear", 1);
  options.pre_norm = false;
  CHECK_THROWS_WITH_AS(Encoder{options}, "norm: reversible layers require pre-norm: expected \"pre\"",
                       OptionError);
  options = reversible_options("linear", 1);
  options.recompute = true;
  CHECK_THROWS_WITH_AS(Encoder{options},
                       "recompute: reversible layers already recompute activations: expected false",
                       OptionError);
  CHECK_THROWS_WITH_AS(
      Encoder{reversible_options("test-irreversible", 1)},
      "reversible: attention kind \"test-irreversible\" has no support for reversible layers: "
      "it is a test",
      OptionError);
}

TEST_CASE(
    "a reversible model has the parameters of other models, with a norm and a predictor of both halves") {
  AutoregressiveModelOptions options = small_options("linear");
  options.encoder.pre_norm = true;
  const NamedTensors ordinary = AutoregressiveModel(options).parameters();
  options.encoder.reversible = true;
  const NamedTensors reversible = AutoregressiveModel(options).parameters();
  REQUIRE(ordinary.size() == reversible.size());
  for (size_t i = 0; i < ordinary.size(); ++i) {
    CHECK(ordinary[i].first == reversible[i].first);
    const bool widened = ordinary[i].first.starts_with("norm.") || ordinary[i].first == "predictor.weight";
    Shape expected = ordinary[i].second.shape();
    if (widened) expected[-1] *= 2;
    CHECK(reversible[i].second.shape() == expected);
  }
}
