#include <algorithm>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/lsh_attention.h"

namespace tapeformer {
namespace {

// Attention of "Reformer" (Kitaev et al. 2020). The hashes use random rotations. Each training step draws new
// rotations, and evaluation always uses the rotations of step 0. A replay of the forward pass in backward()
// uses the buckets of the original pass.
class LshKind final : public Attention {
 public:
  LshKind(const LshOptions& options, double dropout) : options_(options), dropout_(dropout) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(k.shape() == q.shape(), "lsh attention", "queries are used as keys, but the shapes of q ",
          q.shape(), " and k ", k.shape(), " differ");
    LshOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    // Allows sequences with fewer positions than options.buckets. Such sequences occur as prefixes in
    // generation and as short sequences in a padded batch.
    options.allow_any_length = context.is_prefix || mask.key_lengths.defined();
    // In evaluation, all examples share rotations, so that the result of an example does not depend on its
    // index in the batch.
    options.share_rotations = !context.training;
    const DropoutMask weights = context.make_dropout_mask(dropout_, name + ".weights");
    options.dropout = weights.p;
    options.dropout_stream = weights.stream;
    options.first_example = context.first_example;
    const auto draw_buckets = [&] {
      const RandomStream stream(context.seed, name + ".rotations", context.training ? context.step : 0);
      return compute_lsh_buckets(q, options, stream);
    };
    const Tensor buckets = context.decisions
                               ? context.decisions->get_or_decide(name + ".buckets", draw_buckets)
                               : draw_buckets();
    return lsh_attention(q, v, buckets, options);
  }

 private:
  LshOptions options_;
  double dropout_;
};

// The choices of each option. The choice "preset" keeps the setting of the preset. The choices after "preset"
// correspond to the enumerators of an enum in order of declaration, or to false and true.
using Choices = std::initializer_list<const char*>;
constexpr Choices kPresets{"reformer", "trax", "fast_transformers"};
constexpr Choices kWraps{"preset", "none", "round", "global"};
constexpr Choices kDuplicates{"preset", "none", "exact"};
constexpr Choices kNoYes{"preset", "no", "yes"};
constexpr Choices kScales{"preset", "unit_key", "rsqrt_dim"};
constexpr Choices kCombines{"preset", "logsumexp", "mean"};
constexpr Choices kHashes{"preset", "rotations", "hyperplanes"};

// Sets `option` to the chosen value of the option `name`. If the choice is "preset", does not change
// `option`.
template <class E>
void choose(const OptionValues& values, const char* name, Choices choices, E& option) {
  const auto found = std::find(choices.begin(), choices.end(), values.get<std::string>(name));
  const auto index = found - choices.begin();
  if (index > 0) option = static_cast<E>(index - 1);
}

LshOptions make_lsh_options(const OptionValues& values) {
  LshOptions options = make_lsh_preset(values.get<std::string>("preset"));
  options.rounds = values.get<int64_t>("rounds");
  if (const auto chunk = values.get<int64_t>("chunk_length"); chunk > 0) options.chunk_length = chunk;
  if (const auto buckets = values.get<int64_t>("buckets"); buckets >= 0) options.buckets = buckets;
  choose(values, "wrap", kWraps, options.wrap);
  choose(values, "duplicates", kDuplicates, options.duplicates);
  choose(values, "across_buckets", kNoYes, options.across_buckets);
  choose(values, "scale", kScales, options.scale);
  choose(values, "combine", kCombines, options.combine);
  choose(values, "hash", kHashes, options.hash);
  const bool is_preset = values.get<std::string>("combine") == "preset";
  if (values.get<std::string>("duplicates") == "exact" && options.combine == LshOptions::Combine::mean)
    throw OptionError("duplicates", concat_text("\"exact\" is not supported with combine = \"mean\"",
                                                is_preset ? " of the preset" : ""));
  if (options.buckets % 2 != 0)
    throw OptionError("buckets", concat_text("expected an even number, got ", options.buckets));
  return options;
}

void check_length(const OptionValues& values, int64_t length) {
  const LshOptions options = make_lsh_options(values);
  if (options.chunk_length > length)
    throw OptionError("chunk_length", concat_text("expected at most the length of the sequences, ", length,
                                                  ", got ", options.chunk_length));
  try {
    count_lsh_buckets(options, length);
  } catch (const ShapeError& error) {
    throw OptionError("buckets", error.what());
  }
}

// Implements AttentionKind::count_multiply_adds without the cost of hashing. In every round, a query attends
// on average to half of its chunk and to the whole previous chunk. A sequence of one chunk uses exact
// attention, in which a query attends to half of the positions on average.
double count_lsh_multiply_adds(const OptionValues& values, const AttentionSize& size) {
  const LshOptions options = make_lsh_options(values);
  const auto chunk = static_cast<double>(options.chunk_length), length = static_cast<double>(size.length);
  const double keys =
      size.length <= options.chunk_length ? length / 2 : 1.5 * chunk * static_cast<double>(options.rounds);
  return 2 * static_cast<double>(size.dim) * keys * length;
}

OptionSpec make_choice_option(const char* name, Choices choices, const char* help) {
  return {.name = name,
          .default_value = std::string(*choices.begin()),
          .help = help,
          .choices = {choices.begin(), choices.end()}};
}
OptionSpec make_integer_option(const char* name, int64_t value, double min, double max, const char* help) {
  return {.name = name, .default_value = value, .help = help, .min = min, .max = max};
}

std::vector<OptionSpec> lsh_option_specs() {
  return {make_choice_option(
              "preset", kPresets,
              "implementation of LSH attention whose settings are the defaults of the other options"),
          make_integer_option("rounds", 4, 1, 255,
                              "rounds of hashing; may differ between training and evaluation"),
          make_integer_option("chunk_length", 0, 0, 1 << 20,
                              "positions per chunk; 0: from the preset, 64 (fast_transformers: 32)"),
          make_integer_option("buckets", -1, -1, 1 << 24,
                              "number of buckets, even; 0: 2 length / chunk_length; -1: from the preset, 0 "
                              "(fast_transformers: 64)"),
          make_choice_option(
              "wrap", kWraps,
              "chunk before the first chunk: none, the last chunk of the same round (round), or the last "
              "chunk of the previous round (global, trax); it rarely matters without across_buckets"),
          make_choice_option(
              "duplicates", kDuplicates,
              "weight of a key found n times: n (none, trax) or 1 (exact, the paper); exact takes time "
              "quadratic in the rounds and does not work with combine = mean"),
          make_choice_option("across_buckets", kNoYes,
                             "also attend to positions of other buckets in the chunk (trax)"),
          make_choice_option("scale", kScales,
                             "scores: q · k / |k| (unit_key, the paper) or q · k / |k| / √dim (rsqrt_dim)"),
          make_choice_option("combine", kCombines,
                             "rounds: one softmax over all (logsumexp, the paper) or their mean"),
          make_choice_option(
              "hash", kHashes,
              "rotations per example, head and round, factorised above 128 buckets (rotations), or one per "
              "round, not factorised (hyperplanes)")};
}

}  // namespace

AttentionKind make_lsh_attention_kind() {
  return {
      .name = "lsh",
      .help = "attention of Reformer within buckets of a random hash: time is linear in the length",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths = make_unsupported("queries are used as keys"),
                       .recurrent = make_unsupported("a new token may move earlier tokens to other chunks"),
                       .weight_dropout = true,
                       .bfloat16 = true,
                       .shares_query_key = true,
                       .has_random_evaluation = true},
      .options = lsh_option_specs(),
      .make =
          [](const OptionValues& values, const AttentionSetup& setup) {
            return std::make_unique<LshKind>(make_lsh_options(values), setup.dropout);
          },
      .check_length = check_length,
      .count_multiply_adds = count_lsh_multiply_adds,
      .test_options = {{"chunk_length", int64_t{4}}},
      .variants = {{"reformer-1", {{"rounds", int64_t{1}}}},
                   {"reformer-4", {{"rounds", int64_t{4}}}},
                   {"reformer-8", {{"rounds", int64_t{8}}}}}};
}

}  // namespace tapeformer
