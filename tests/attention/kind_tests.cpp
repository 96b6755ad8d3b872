#include "tests/attention/kind_tests.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "core/random/random.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

struct KindInputs {
  Tensor q, k, v;  // (batch, length, heads, dim)
  Tensor x;        // the input of the layer, (batch, length, heads * dim)
};

const AttentionMask kCausalMask{.causal = true, .key_lengths = {}};
const AttentionMask kOpenMask{.causal = false, .key_lengths = {}};

// Returns the largest absolute difference between elements of `result` and `expected`, divided by the largest
// magnitude in `expected`. Returns infinity if the shapes differ or an element is not finite.
double compute_relative_difference(const Tensor& result, const Tensor& expected) {
  if (result.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  const std::vector<double> x = result.to_vector(), y = expected.to_vector();
  double difference = 0, largest = std::numeric_limits<double>::min();
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return difference / largest;
}

// Returns "" if the relative difference of two results is at most `tolerance`, and a description otherwise.
std::string compare(const Tensor& result, const Tensor& expected, double tolerance, const std::string& what) {
  const double difference = compute_relative_difference(result, expected);
  return difference <= tolerance
             ? ""
             : concat_text(what, ": relative difference ", difference, ", expected at most ", tolerance);
}

bool has_only_finite_elements(const Tensor& x) {
  const std::vector<double> elements = x.to_vector();
  return std::all_of(elements.begin(), elements.end(), [](double e) { return std::isfinite(e); });
}

KindInputs map_inputs(const KindInputs& inputs, const std::function<Tensor(const Tensor&)>& f) {
  return {f(inputs.q), f(inputs.k), f(inputs.v), f(inputs.x)};
}

Tensor take_tokens(const Tensor& x, int64_t end) {
  return slice(x, 1, 0, end);
}

class KindTester {
 public:
  KindTester(const AttentionKind& kind, const OptionValues& options, const AttentionTestSetup& setup)
      : kind_(kind), options_(options), setup_(setup) {
    check(setup.length >= 4 && setup.heads > 0 && setup.dim > 0, "run_attention_tests",
          "expected length >= 4, heads >= 1 and dim >= 1, got ", setup.length, ", ", setup.heads, " and ",
          setup.dim);
    check_attention_length(kind.name, options, setup.length);
    make();  // throws OptionError for invalid options
    const auto draw = [&](const char* name) {
      return randn({kBatch, setup.length, setup.heads, setup.dim}, {1, name}, DType::float64);
    };
    inputs_ = {draw("queries"), draw("keys"), draw("values"),
               reshape(draw("inputs"), {kBatch, setup.length, setup.heads * setup.dim})};
    if (kind.capabilities.shares_query_key) inputs_.k = inputs_.q;
  }

  std::vector<AttentionTestResult> run();

 private:
  static constexpr int64_t kBatch = 2;

  struct Test {
    const char* name;
    std::string (KindTester::*run)() const;  // returns a description of the failure, or ""
    Capability requirement = true;
  };

  std::unique_ptr<Attention> make(DType dtype = DType::float64, double dropout = 0,
                                  bool causal = false) const;
  Tensor attend(const Attention& attention, const KindInputs& inputs, const AttentionMask& mask,
                const ForwardContext& context) const;
  AttentionMask select_mask() const { return kind_.capabilities.causal ? kCausalMask : kOpenMask; }
  int64_t prefix_length() const { return (setup_.length + 1) / 2; }
  std::vector<std::pair<std::string, AttentionMask>> list_masks() const;

  std::string test_results() const;
  std::string test_strides() const;
  std::string test_repetition() const;
  std::string test_gradients() const;
  std::string test_causal_mask() const;
  std::string test_length_mask() const;
  std::string test_different_lengths() const;
  std::string test_evaluation() const;
  std::string test_weight_dropout() const;
  std::string test_replay() const;
  std::string test_prefix() const;
  std::string test_recurrent_form() const;
  std::string test_reading() const;
  std::string test_state() const;
  std::string test_float32() const;
  std::string test_bfloat16() const;
  std::string test_cost() const;
  std::string test_device() const;

  const AttentionKind& kind_;
  OptionValues options_;
  AttentionTestSetup setup_;
  KindInputs inputs_;
};

std::vector<AttentionTestResult> KindTester::run() {
  const AttentionCapabilities& c = kind_.capabilities;
  const Capability fixed_evaluation = c.has_random_evaluation
                                          ? make_unsupported("results of evaluation depend on the seed")
                                          : Capability(true);
  const Capability cost = kind_.count_multiply_adds
                              ? Capability(true)
                              : make_unsupported("the kind does not define count_multiply_adds");
  const Capability device =
      setup_.device.is_cpu() ? make_unsupported("no CUDA device is selected") : Capability(true);
  const Test tests[] = {{"results", &KindTester::test_results},
                        {"strides", &KindTester::test_strides},
                        {"repetition", &KindTester::test_repetition},
                        {"gradients", &KindTester::test_gradients},
                        {"causal mask", &KindTester::test_causal_mask, c.causal},
                        {"length mask", &KindTester::test_length_mask, c.length_masks},
                        {"different lengths", &KindTester::test_different_lengths, c.unequal_lengths},
                        {"evaluation", &KindTester::test_evaluation, fixed_evaluation},
                        {"dropout of weights", &KindTester::test_weight_dropout, c.weight_dropout},
                        {"replay", &KindTester::test_replay, c.reversible},
                        {"prefixes", &KindTester::test_prefix, c.causal},
                        {"recurrent form", &KindTester::test_recurrent_form, c.recurrent},
                        {"reading", &KindTester::test_reading, c.recurrent},
                        {"state", &KindTester::test_state, c.recurrent},
                        {"float32", &KindTester::test_float32},
                        {"bfloat16", &KindTester::test_bfloat16, c.bfloat16},
                        {"multiply-adds", &KindTester::test_cost, cost},
                        {"device", &KindTester::test_device, device}};
  std::vector<AttentionTestResult> results;
  for (const Test& test : tests) {
    AttentionTestResult result{test.name, "", test.requirement.reason()};
    if (test.requirement) try {
        result.failure = (this->*test.run)();
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const std::exception& error) {
        result.failure = std::string("exception: ") + error.what();
      }
    results.push_back(result);
  }
  return results;
}

std::unique_ptr<Attention> KindTester::make(DType dtype, double dropout, bool causal) const {
  auto attention = make_attention(kind_.name, options_,
                                  {.heads = setup_.heads,
                                   .dim = setup_.dim,
                                   .max_length = setup_.length,
                                   .dropout = dropout,
                                   .rotary = true,
                                   .causal = causal});
  attention->initialize(1);
  attention->convert(dtype);
  return attention;
}

Tensor KindTester::attend(const Attention& attention, const KindInputs& inputs, const AttentionMask& mask,
                          const ForwardContext& context) const {
  const NoGradScope no_grad;
  return attention.forward_with_input(inputs.x, inputs.q, inputs.k, inputs.v, mask, context,
                                      "layers.0.attention");
}

std::vector<std::pair<std::string, AttentionMask>> KindTester::list_masks() const {
  std::vector<std::pair<std::string, AttentionMask>> masks{{"without a mask", kOpenMask}};
  if (kind_.capabilities.causal) masks.emplace_back("with a causal mask", kCausalMask);
  if (kind_.capabilities.length_masks)
    masks.emplace_back("with lengths", AttentionMask{false, Tensor::from_vector<int64_t>(
                                                                {setup_.length, prefix_length()}, {kBatch})});
  return masks;
}

std::string KindTester::test_results() const {
  const auto attention = make();
  for (const auto& [name, mask] : list_masks())
    for (const bool training : {false, true}) {
      const Tensor result = attend(*attention, inputs_, mask, {.training = training});
      if (!result.defined()) return "the result is undefined " + name;
      if (result.shape() != inputs_.v.shape())
        return concat_text("the shape of the result is ", result.shape().to_string(), " ", name,
                           ", expected ", inputs_.v.shape().to_string());
      if (result.dtype() != DType::float64)
        return concat_text("the dtype of the result is ", name_of(result.dtype()), " for float64 inputs");
      if (!has_only_finite_elements(result)) return "the result has elements that are not finite, " + name;
    }
  return "";
}

std::string KindTester::test_strides() const {
  const auto attention = make();
  const Tensor expected = attend(*attention, inputs_, select_mask(), {});
  // The test stores the dimensions of the inputs in memory in the orders (batch, heads, length, dim) and
  // (batch, dim, heads, length). Each permutation is its own inverse, so the second permute() restores the
  // shape.
  for (const Shape& order : {Shape{0, 2, 1, 3}, Shape{0, 3, 2, 1}}) {
    const auto change_strides = [&](const Tensor& x) {
      return x.rank() == 4 ? permute(contiguous(permute(x, order)), order) : x;
    };
    const std::string problem =
        compare(attend(*attention, map_inputs(inputs_, change_strides), select_mask(), {}), expected, 1e-12,
                "inputs with other strides");
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string KindTester::test_repetition() const {
  const auto attention = make();
  for (const bool training : {false, true}) {
    const ForwardContext context{.training = training, .seed = 5, .step = 2};
    const Tensor first = attend(*attention, inputs_, select_mask(), context);
    if (attend(*attention, inputs_, select_mask(), context).to_vector() != first.to_vector())
      return concat_text("a second ", training ? "training" : "evaluation",
                         " pass with the same context gives a different result");
  }
  return "";
}

std::string KindTester::test_gradients() const {
  for (const auto& [name, mask] : list_masks()) {
    const auto attention = make(DType::float64, 0, mask.causal);
    StoredDecisions decisions;
    const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
    KindInputs inputs = map_inputs(inputs_, [](const Tensor& x) { return set_requires_grad(x.clone()); });
    if (kind_.capabilities.shares_query_key) inputs.k = inputs.q;
    NamedTensors leaves = attention->parameters();
    leaves.insert(leaves.end(), {{"q", inputs.q}, {"k", inputs.k}, {"v", inputs.v}, {"x", inputs.x}});
    if (!kind_.capabilities.reads_layer_input) leaves.pop_back();
    const GradcheckResult result = gradcheck_leaves(
        [&] {
          return attention->forward_with_input(inputs.x, inputs.q, inputs.k, inputs.v, mask, context,
                                               "layers.0.attention");
        },
        strip_names(leaves), {.step = 1e-4, .kink_step = 1e-7, .max_elements = 40, .min_denominator = 1e-4});
    if (result.max_relative_error < 1e-6) continue;
    return concat_text(name, ", the gradient of ", leaves[static_cast<size_t>(result.worst_input)].first,
                       " does not match central differences: relative error ", result.max_relative_error,
                       result.message.empty() ? "" : ", ", result.message);
  }
  return "";
}

std::string KindTester::test_causal_mask() const {
  const auto attention = make();
  const int64_t end = prefix_length();
  const auto change_later_tokens = [&](const Tensor& x) {
    return concat({take_tokens(x, end), neg(slice(x, 1, end, setup_.length))}, 1);
  };
  for (const bool training : {false, true}) {
    // The second pass repeats the decisions of the first pass, such as LSH buckets. With new decisions, the
    // changed tokens could change the keys that earlier queries attend to.
    StoredDecisions decisions;
    const ForwardContext context{.training = training, .seed = 5, .step = 2, .decisions = &decisions};
    const Tensor before = attend(*attention, inputs_, kCausalMask, context);
    const Tensor after = attend(*attention, map_inputs(inputs_, change_later_tokens), kCausalMask, context);
    if (compute_relative_difference(after, before) == 0) return "the results of changed tokens do not change";
    const std::string problem = compare(take_tokens(after, end), take_tokens(before, end), 1e-12,
                                        "results of tokens before a changed token");
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string KindTester::test_length_mask() const {
  const auto attention = make();
  const int64_t end = prefix_length();
  const Tensor lengths = Tensor::from_vector<int64_t>({setup_.length, end}, {kBatch});
  const auto take_second = [&](const Tensor& x) { return take_tokens(slice(x, 0, 1, 2), end); };
  const Tensor padded = attend(*attention, inputs_, {false, lengths}, {});
  const Tensor truncated =
      attend(*attention, map_inputs(inputs_, take_second), kOpenMask, {.first_example = 1});
  const std::string problem =
      compare(take_second(padded), truncated, 1e-10, "a padded sequence and the sequence without padding");
  if (!problem.empty()) return problem;
  const Tensor empty =
      attend(*attention, inputs_, {false, Tensor::from_vector<int64_t>({setup_.length, 0}, {kBatch})}, {});
  return has_only_finite_elements(empty) ? "" : "a sequence of length 0 gives elements that are not finite";
}

std::string KindTester::test_different_lengths() const {
  const auto attention = make();
  const int64_t end = prefix_length();
  const Tensor q = take_tokens(inputs_.q, end);
  const Tensor all_keys = attend(*attention, {q, inputs_.k, inputs_.v, inputs_.x}, kOpenMask, {});
  if (all_keys.shape() != q.shape())
    return concat_text("the shape of the result is ", all_keys.shape().to_string(), ", expected ",
                       q.shape().to_string());
  const Tensor first_keys = attend(
      *attention, {q, take_tokens(inputs_.k, end), take_tokens(inputs_.v, end), inputs_.x}, kOpenMask, {});
  if (!has_only_finite_elements(all_keys) || !has_only_finite_elements(first_keys))
    return "the result has elements that are not finite";
  return compute_relative_difference(all_keys, first_keys) > 0
             ? ""
             : "keys at positions after the last query have no effect";
}

std::string KindTester::test_evaluation() const {
  const auto attention = make();
  const Tensor first = attend(*attention, inputs_, select_mask(), {.seed = 1});
  return attend(*attention, inputs_, select_mask(), {.seed = 2}).to_vector() == first.to_vector()
             ? ""
             : "the result of evaluation depends on the seed, but the kind does not declare "
               "has_random_evaluation";
}

std::string KindTester::test_weight_dropout() const {
  const auto attention = make(DType::float64, 0.5);
  const ForwardContext training{.training = true, .seed = 5, .step = 2};
  ForwardContext disabled = training;
  disabled.disable_dropout = true;
  const Tensor dropped = attend(*attention, inputs_, select_mask(), training);
  if (attend(*attention, inputs_, select_mask(), training).to_vector() != dropped.to_vector())
    return "a second training pass with the same seed and step drops different weights";
  if (!has_only_finite_elements(dropped)) return "dropout gives elements that are not finite";
  if (compute_relative_difference(attend(*attention, inputs_, select_mask(), disabled), dropped) == 0)
    return "dropout does not change the result of training";
  const auto without = make();
  return compare(attend(*attention, inputs_, select_mask(), {}), attend(*without, inputs_, select_mask(), {}),
                 1e-12, "evaluations with and without dropout");
}

std::string KindTester::test_replay() const {
  const auto attention = make();
  // The tokens 2 * i and 2 * i + 1 have equal queries and keys, so their scores are equal. A rounding error
  // can then change decisions that compare scores, unless the replay repeats the decisions of the first pass.
  const auto repeat_tokens = [&](const Tensor& x) {
    std::vector<Tensor> tokens;
    for (int64_t t = 0; t < setup_.length; ++t) tokens.push_back(slice(x, 1, t / 2 * 2, t / 2 * 2 + 1));
    return concat(tokens, 1);
  };
  const KindInputs inputs{repeat_tokens(inputs_.q), repeat_tokens(inputs_.k), inputs_.v, inputs_.x};
  int64_t draw_count = 0;
  const auto add_rounding_errors = [&](const Tensor& x) {
    return add(x, mul(randn(x.shape(), {static_cast<uint64_t>(++draw_count), "rounding"}, x.dtype()), 1e-9));
  };
  KindInputs rounded = map_inputs(inputs, add_rounding_errors);
  if (kind_.capabilities.shares_query_key) rounded.k = rounded.q;
  StoredDecisions decisions;
  const ForwardContext context{.training = true, .seed = 5, .step = 2, .decisions = &decisions};
  const Tensor first = attend(*attention, inputs, select_mask(), context);
  return compare(attend(*attention, rounded, select_mask(), context), first, 1e-6,
                 "a replay with other rounding errors");
}

std::string KindTester::test_prefix() const {
  const auto attention = make();
  const int64_t end = prefix_length();
  const auto take_prefix = [&](const Tensor& x) { return take_tokens(x, end); };
  const Tensor prefix =
      attend(*attention, map_inputs(inputs_, take_prefix), kCausalMask, {.is_prefix = true});
  if (!has_only_finite_elements(prefix)) return "a prefix gives elements that are not finite";
  // Without a recurrent form, later tokens can change the keys that earlier queries attend to. The results of
  // a prefix and of the whole sequence can then differ.
  if (!kind_.capabilities.recurrent) return "";
  return compare(prefix, take_prefix(attend(*attention, inputs_, kCausalMask, {})), 1e-10,
                 "a prefix and the same tokens of the whole sequence");
}

std::string KindTester::test_recurrent_form() const {
  const auto attention = make();
  const Tensor expected = attend(*attention, inputs_, kCausalMask, {});
  const NoGradScope no_grad;
  const auto state = attention->make_state({kBatch, setup_.heads, setup_.dim, setup_.dim, setup_.length,
                                            DType::float64, kCpu, "layers.0.attention"});
  const Tensor out = Tensor::zeros({kBatch, setup_.heads, setup_.dim}, DType::float64);
  const Shape flat_shape{kBatch, setup_.heads * setup_.dim};
  for (const char* round : {"a new state", "a reset state"}) {
    for (int64_t t = 0; t < setup_.length; ++t) {
      const auto take_token = [&](const Tensor& x) {
        return contiguous(slice(x, 1, t, t + 1)).view(x.rank() == 4 ? out.shape() : flat_shape);
      };
      const KindInputs token = map_inputs(inputs_, take_token);
      const int64_t before = get_device_allocator().stats().allocation_count;
      attention->observe_input(token.x, *state);
      attention->step(token.q, token.k, token.v, *state, out);
      if (get_device_allocator().stats().allocation_count != before)
        return concat_text("step() allocates memory at token ", t);
      const std::string problem = compare(out, take_token(expected), 1e-10,
                                          concat_text("step() with ", round, " and forward() at token ", t));
      if (!problem.empty()) return problem;
    }
    state->reset();
  }
  return "";
}

std::string KindTester::test_reading() const {
  const auto attention = make();
  const Tensor expected = attend(*attention, inputs_, kCausalMask, {});
  const NoGradScope no_grad;
  const auto state = attention->make_state({kBatch, setup_.heads, setup_.dim, setup_.dim, setup_.length,
                                            DType::float64, kCpu, "layers.0.attention"});
  const int64_t half = setup_.length / 2;
  for (int64_t first = 0, last = half; first < setup_.length; first = last, last = setup_.length) {
    const auto take = [&](const Tensor& x) { return slice(x, 1, first, last); };
    const KindInputs part = map_inputs(inputs_, take);
    const Tensor out =
        attention->read_tokens(part.x, part.q, part.k, part.v, {*state, {}, first}, {}, "layers.0.attention");
    const std::string problem = compare(
        out, take(expected), 1e-10, concat_text("read_tokens() from token ", first, " on, and forward()"));
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string KindTester::test_state() const {
  const auto attention = make();
  const auto count_bytes = [&](int64_t capacity) {
    return attention
        ->make_state({kBatch, setup_.heads, setup_.dim, setup_.dim, capacity, DType::float64, kCpu,
                      "layers.0.attention"})
        ->bytes();
  };
  // The state of a kind with a window has a constant size only if the capacity exceeds the window.
  constexpr int64_t kLong = 1 << 16;
  const int64_t bytes = count_bytes(kLong), doubled = count_bytes(2 * kLong);
  if (bytes <= 0) return concat_text("expected a state of at least 1 byte, got ", bytes);
  if (kind_.capabilities.has_constant_size_state && bytes != doubled)
    return concat_text("the state has ", bytes, " bytes for ", kLong, " tokens and ", doubled,
                       " bytes for twice as many, but the kind declares has_constant_size_state");
  return "";
}

std::string KindTester::test_float32() const {
  StoredDecisions decisions;
  const ForwardContext context{.decisions = &decisions};
  const Tensor expected = attend(*make(), inputs_, select_mask(), context);
  const auto round = [](const Tensor& x) { return x.to(DType::float32); };
  const Tensor result = attend(*make(DType::float32), map_inputs(inputs_, round), select_mask(), context);
  if (result.dtype() != DType::float32)
    return concat_text("the dtype of the result is ", name_of(result.dtype()), " for float32 inputs");
  return compare(result, expected, 1e-4, "float32 and float64");
}

std::string KindTester::test_bfloat16() const {
  StoredDecisions decisions;
  const ForwardContext context{.decisions = &decisions};
  const auto round = [](const Tensor& x) { return x.to(DType::bfloat16); };
  const KindInputs rounded = map_inputs(inputs_, round);
  const auto widen = [](const Tensor& x) { return x.to(DType::float64); };
  const Tensor expected = attend(*make(), map_inputs(rounded, widen), select_mask(), context);
  const Tensor result = attend(*make(DType::float32), rounded, select_mask(), context);
  if (result.dtype() != DType::bfloat16)
    return concat_text("the dtype of the result is ", name_of(result.dtype()), " for bfloat16 inputs");
  return compare(result, expected, 0.05, "bfloat16 and float64");
}

std::string KindTester::test_cost() const {
  constexpr int64_t kLong = 4096;
  const double cost = kind_.count_multiply_adds(options_, {kLong, setup_.dim});
  const double doubled = kind_.count_multiply_adds(options_, {2 * kLong, setup_.dim});
  return cost > 0 && doubled >= cost ? ""
                                     : concat_text("the kind counts ", cost, " multiply-adds for ", kLong,
                                                   " tokens and ", doubled, " for twice as many");
}

std::string KindTester::test_device() const {
  const auto round = [](const Tensor& x) { return x.to(DType::float32); };
  const KindInputs rounded = map_inputs(inputs_, round);
  const Tensor expected = attend(*make(DType::float32), rounded, select_mask(), {});
  const auto attention = make(DType::float32);
  attention->move(setup_.device);
  const auto move = [&](const Tensor& x) { return x.to(setup_.device); };
  return compare(attend(*attention, map_inputs(rounded, move), select_mask(), {}), expected, 1e-4,
                 "the device and the CPU");
}

}  // namespace

std::vector<AttentionTestResult> run_attention_tests(const AttentionKind& kind, const OptionValues& options,
                                                     const AttentionTestSetup& setup) {
  return KindTester(kind, options, setup).run();
}

}  // namespace tapeformer
