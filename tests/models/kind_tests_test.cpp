// Runs the tests of attention kinds for every built-in kind. Also checks that these tests fail for attention
// kinds with deliberate faults.
#include "tests/attention/kind_tests.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/random/rng.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/devices.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

enum class Fault {
  none,
  future,           // a query attends to later keys
  gradient,         // the values have no gradient
  ignored_length,   // masked keys are used
  random,           // evaluation draws random numbers
  unrepeatable,     // the result is different in each call
  rounded_dtype,    // the result is float32
  contiguous,       // the strides of the inputs are ignored
  infinite,         // the result has infinite elements
  step,             // step() copies v to its result
  reading,          // read_tokens() ignores the state
  state,            // the state has a size of 0 bytes
  growth,           // the state has one byte per token
  allocation,       // step() allocates memory
  dropout,          // dropout has no effect
  selection,        // a replay selects tokens again
  unequal_lengths,  // the result is NaN if queries and keys have different lengths
  prefix,           // prefixes are refused
};

// A state without data, which only claims a size.
class EmptyState final : public AttentionState {
 public:
  explicit EmptyState(int64_t claimed_bytes) : claimed_bytes_(claimed_bytes) {}
  void reset() override {}
  int64_t bytes() const override { return claimed_bytes_; }

 private:
  int64_t claimed_bytes_;
};

// An attention kind that computes softmax attention with the fault `fault_`.
class FaultyAttention final : public Attention {
 public:
  explicit FaultyAttention(Fault fault) : fault_(fault) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& values, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    Tensor v = values;
    if (fault_ == Fault::gradient) v = detach(v);
    if (fault_ == Fault::contiguous) v = Tensor(v).alias(v.shape(), contiguous(detach(v)).strides());
    if (fault_ == Fault::infinite) v = mul(v, INFINITY);
    if (fault_ == Fault::random) v = add(v, RandomStream(context.seed, name).uniform(0));
    if (fault_ == Fault::unrepeatable) v = add(v, static_cast<double>(++calls_));
    if (fault_ == Fault::selection) v = add(v, sum_values_of_largest_keys(k, v));
    if (fault_ == Fault::unequal_lengths && q.size(1) != k.size(1)) v = mul(v, NAN);
    if (fault_ == Fault::prefix && context.is_prefix) throw ShapeError("prefixes are refused");
    const Tensor result =
        softmax_attention(q, k, v,
                          {.causal = mask.causal && fault_ != Fault::future,
                           .key_lengths = fault_ == Fault::ignored_length ? Tensor() : mask.key_lengths});
    return fault_ == Fault::rounded_dtype ? cast(result, DType::float32) : result;
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& options) const override {
    if (fault_ == Fault::state) return std::make_unique<EmptyState>(0);
    return std::make_unique<EmptyState>(fault_ == Fault::growth ? options.capacity : 1);
  }
  void step(const Tensor&, const Tensor&, const Tensor& v, AttentionState&,
            const Tensor& out) const override {
    const Tensor copy = fault_ == Fault::allocation ? v.clone() : v;
    std::copy_n(copy.data<double>(), copy.numel(), out.data<double>());
  }
  Tensor read_tokens(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext& context,
                     const std::string& name) const override {
    if (fault_ == Fault::reading) return forward(q, k, v, {.causal = true, .key_lengths = {}}, context, name);
    return Attention::read_tokens(x, q, k, v, state, context, name);
  }

 private:
  static double sum_values_of_largest_keys(const Tensor& k, const Tensor& v) {
    const std::vector<double> keys = k.to_vector(), values = v.to_vector();
    const int64_t length = k.size(1), heads = k.size(2), dim = k.size(3);
    double sum = 0;
    for (int64_t i = 0; i < k.size(0) * heads; ++i) {
      const auto index = [&](int64_t t) {
        return static_cast<size_t>(((i / heads * length + t) * heads + i % heads) * dim);
      };
      int64_t largest = 0;
      for (int64_t t = 1; t < length; ++t)
        if (keys[index(t)] > keys[index(largest)]) largest = t;
      sum += values[index(largest)];
    }
    return sum;
  }

  Fault fault_;
  mutable int calls_ = 0;
};

// Registers an attention kind with this fault and these capabilities. Returns the results of the tests of
// this kind.
std::vector<AttentionTestResult> test_fault(Fault fault, const AttentionCapabilities& capabilities) {
  static int count = 0;
  AttentionKind kind{.name = "test-faulty-" + std::to_string(++count),
                     .help = "",
                     .capabilities = capabilities,
                     .options = {},
                     .make = [fault](const OptionValues&, const AttentionSetup&) {
                       return std::make_unique<FaultyAttention>(fault);
                     }};
  register_attention_kind(kind);
  return run_attention_tests(find_attention_kind(kind.name), {});
}

// Returns the names and failures of the failed tests, one per line.
std::string list_failures(const std::vector<AttentionTestResult>& results) {
  std::string text;
  for (const AttentionTestResult& result : results)
    if (!result.failure.empty()) text += result.name + ": " + result.failure + "\n";
  return text;
}

const AttentionCapabilities kForwardCapabilities{
    .causal = true, .length_masks = true, .unequal_lengths = true, .weight_dropout = true};

}  // namespace

TEST_CASE("every attention kind passes the tests of its capabilities") {
  for (const AttentionKind& kind : list_attention_kinds()) {
    if (kind.name.starts_with("test-")) continue;
    CAPTURE(kind.name);
    for (const Device device : list_devices()) {
      const auto results = run_attention_tests(kind, test_options(kind.name), {.device = device});
      CHECK(list_failures(results) == "");
      CHECK(results.size() == 18);
    }
  }
}

TEST_CASE("linear attention with rotated features passes the tests of attention kinds") {
  const AttentionKind& kind = find_attention_kind("linear");
  const OptionValues options = kind.make_options({{"rotation", std::string("features")}});
  for (const Device device : list_devices())
    CHECK(list_failures(run_attention_tests(kind, options, {.device = device})) == "");
}

TEST_CASE("the tests of attention kinds pass for several lengths, numbers of heads and widths") {
  for (const AttentionTestSetup& setup : {AttentionTestSetup{4, 1, 1}, AttentionTestSetup{17, 3, 5}})
    for (const std::string kind : {"softmax", "linear", "performer", "local", "synthesizer"}) {
      CAPTURE(kind);
      CHECK(list_failures(run_attention_tests(find_attention_kind(kind), test_options(kind), setup)) == "");
    }
}

TEST_CASE("control: the tests of attention kinds find each fault of a wrong kind") {
  AttentionCapabilities without_dropout = kForwardCapabilities;
  without_dropout.weight_dropout = false;
  CHECK(list_failures(test_fault(Fault::none, without_dropout)) == "");
  const std::vector<std::pair<Fault, std::string>> cases = {
      {Fault::future, "causal mask: results of tokens before a changed token: relative difference"},
      {Fault::gradient, "gradients: without a mask, the gradient of v does not match central differences"},
      {Fault::ignored_length, "length mask: a padded sequence and the sequence without padding"},
      {Fault::random, "evaluation: the result of evaluation depends on the seed"},
      {Fault::unrepeatable,
       "repetition: a second evaluation pass with the same context gives a different result"},
      {Fault::rounded_dtype, "results: the dtype of the result is float32 for float64 inputs"},
      {Fault::contiguous, "strides: inputs with other strides: relative difference"},
      {Fault::infinite, "results: the result has elements that are not finite, without a mask"},
      {Fault::selection, "replay: a replay with other rounding errors: relative difference"},
      {Fault::unequal_lengths, "different lengths: the result has elements that are not finite"},
      {Fault::prefix, "prefixes: exception: prefixes are refused"}};
  for (const auto& [bound_fault, bound_text] : cases) {
    const std::string& text = bound_text;  // clang 14 cannot capture a structured binding
    CAPTURE(text);
    CHECK(contains(list_failures(test_fault(bound_fault, without_dropout)), text));
  }
  CHECK(contains(list_failures(test_fault(Fault::dropout, kForwardCapabilities)),
                 "dropout of weights: dropout does not change the result of training"));
}

TEST_CASE("control: the tests of attention kinds find wrong recurrent forms and wrong declarations") {
  AttentionCapabilities capabilities{.causal = true, .recurrent = true};
  CHECK(contains(list_failures(test_fault(Fault::step, capabilities)),
                 "recurrent form: step() with a new state and forward() at token 1"));
  CHECK(contains(list_failures(test_fault(Fault::reading, capabilities)),
                 "reading: read_tokens() from token 4 on, and forward()"));
  CHECK(!contains(list_failures(test_fault(Fault::step, capabilities)), "state: "));
  CHECK(contains(list_failures(test_fault(Fault::state, capabilities)),
                 "state: expected a state of at least 1 byte, got 0"));
  capabilities.has_constant_size_state = true;
  CHECK(!contains(list_failures(test_fault(Fault::step, capabilities)), "state: "));
  CHECK(contains(list_failures(test_fault(Fault::growth, capabilities)),
                 "state: the state has 65536 bytes for 65536 tokens and 131072 bytes for twice as many"));
  CHECK(contains(list_failures(test_fault(Fault::allocation, capabilities)),
                 "recurrent form: step() allocates memory at token 0"));
  AttentionCapabilities narrow{.causal = true, .bfloat16 = true};
  const auto results = test_fault(Fault::rounded_dtype, narrow);
  CHECK(contains(list_failures(results), "bfloat16: the dtype of the result is float32 for bfloat16 inputs"));
  for (const AttentionTestResult& result : results)
    if (result.name == "length mask") CHECK(result.skip_reason == Capability(false).reason());
}

TEST_CASE("the tests of attention kinds refuse options that do not suit the length") {
  const AttentionKind& kind = find_attention_kind("linformer");
  CHECK_THROWS_AS(run_attention_tests(kind, kind.make_options({{"rank", int64_t{10}}})), OptionError);
  CHECK_THROWS_WITH_AS(run_attention_tests(kind, test_options("linformer"), {.length = 3}),
                       doctest::Contains("expected length >= 4, heads >= 1 and dim >= 1, got 3, 2 and 4"),
                       ShapeError);
}
