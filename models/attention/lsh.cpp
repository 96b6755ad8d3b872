#include <algorithm>

#include "models/attention/attention.h"
#include "ops/lsh_attention.h"

namespace tapeformer {
namespace {

// Reformer's attention (Kitaev et al. 2020). Rotations are drawn in every training step, even if dropout is
// off, and are fixed in evaluation. If a pass will be replayed, the buckets of the first run are kept.
class LshKind final : public Attention {
 public:
  explicit LshKind(const LshOptions& options) : options_(options) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& place) const override {
    check(k.shape() == q.shape(), "lsh attention", "queries are the keys, so q ", q.shape(), " and k ",
          k.shape(), " must be the same");
    LshOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    // Decoding runs prefixes that are shorter than the sequences a number of buckets was chosen for, and
    // utterances may be shorter too.
    options.any_length = context.prefix || mask.key_lengths.defined();
    options.share_rotations = !context.training;  // so that results do not depend on how batches are cut
    const auto decide = [&] {
      const RandomStream stream(context.seed, place + ".rotations", context.training ? context.step : 0);
      return lsh_buckets(q, options, stream);
    };
    const Tensor buckets = context.decisions ? context.decisions->at(place + ".buckets", decide) : decide();
    return lsh_attention(q, v, buckets, options);
  }

 private:
  LshOptions options_;
};

// Names of an option's choices: the preset's, then the values of its enum in order.
using Choices = std::initializer_list<const char*>;
constexpr Choices kPresets{"reformer", "trax", "fast_transformers"};
constexpr Choices kWraps{"preset", "none", "round", "global"};
constexpr Choices kDuplicates{"preset", "none", "exact"};
constexpr Choices kNoYes{"preset", "no", "yes"};
constexpr Choices kScales{"preset", "unit_key", "rsqrt_dim"};
constexpr Choices kCombines{"preset", "logsumexp", "mean"};
constexpr Choices kHashes{"preset", "rotations", "hyperplanes"};

template <class E>
void choose(const OptionValues& values, const char* name, Choices choices, E& option) {
  const auto found = std::find(choices.begin(), choices.end(), values.get<std::string>(name));
  const auto index = found - choices.begin();
  if (index > 0) option = static_cast<E>(index - 1);
}

LshOptions lsh_options(const OptionValues& values) {
  LshOptions options = lsh_preset(values.get<std::string>("preset"));
  options.rounds = values.get<int64_t>("rounds");
  if (const auto chunk = values.get<int64_t>("chunk_length"); chunk > 0) options.chunk_length = chunk;
  if (const auto buckets = values.get<int64_t>("buckets"); buckets >= 0) options.buckets = buckets;
  choose(values, "wrap", kWraps, options.wrap);
  choose(values, "duplicates", kDuplicates, options.duplicates);
  choose(values, "across_buckets", kNoYes, options.across_buckets);
  choose(values, "scale", kScales, options.scale);
  choose(values, "combine", kCombines, options.combine);
  choose(values, "hash", kHashes, options.hash);
  if (options.buckets % 2 != 0)
    throw ConfigError(concat_text("attention.buckets must be even, not ", options.buckets));
  return options;
}

void check_length(const OptionValues& values, int64_t length) try {
  const LshOptions options = lsh_options(values);
  if (options.chunk_length > length)
    throw ConfigError(concat_text("attention.chunk_length: chunks of ", options.chunk_length,
                                  " are longer than the sequences, ", length, ": set it to ", length,
                                  " for one chunk that sees everything, or lower"));
  lsh_bucket_count(options, length);
} catch (const ShapeError& error) {
  throw ConfigError(std::string("attention kind \"lsh\": ") + error.what());
}

// In every round, a query attends on average to half of its own chunk and to all of the previous chunk. A
// sequence of one chunk uses exact attention.
double flops(const OptionValues& values, int64_t length, int64_t dim) {
  const LshOptions options = lsh_options(values);
  const auto chunk = static_cast<double>(options.chunk_length), all = static_cast<double>(length);
  const double keys =
      length <= options.chunk_length ? all / 2 : 1.5 * chunk * static_cast<double>(options.rounds);
  return 4 * static_cast<double>(dim) * keys * all;
}

OptionSpec choice(const char* name, Choices choices, const char* help) {
  return {.name = name,
          .default_value = std::string(*choices.begin()),
          .help = help,
          .choices = {choices.begin(), choices.end()}};
}
OptionSpec number(const char* name, int64_t value, double min, double max, const char* help) {
  return {.name = name, .default_value = value, .help = help, .min = min, .max = max};
}

}  // namespace

AttentionKind lsh_attention_kind() {
  return {
      .name = "lsh",
      .help =
          "Reformer's attention within buckets of a random hash, queries shared as keys: linear in the "
          "length",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .no_recurrence = "a new token may move earlier ones to other buckets and chunks",
                       .shared_query_key = true},
      .options =
          {choice("preset", kPresets, "whose LSH attention; the options below change parts of it"),
           number("rounds", 4, 1, 255, "rounds of hashing; may differ in evaluation"),
           number("chunk_length", 0, 0, 1 << 20,
                  "positions of a chunk; 0: the preset's, 64 (fast_transformers: 32)"),
           number("buckets", -1, -1, 1 << 24,
                  "even; 0: 2 length / chunk_length; -1: the preset's, which is 0 (fast_transformers: 64)"),
           choice("wrap", kWraps,
                  "what the first chunk looks back at: nothing, its round's last chunk, "
                  "or the round before's (trax); without across_buckets it seldom matters"),
           choice("duplicates", kDuplicates,
                  "a key met in several places counts every time (none: trax) or once (exact: the paper, "
                  "in time quadratic in the rounds; not with combine = mean)"),
           choice("across_buckets", kNoYes, "see a chunk's positions of other buckets too (trax)"),
           choice("scale", kScales, "of the scores: q . k / |k| (the paper), or that over root dim"),
           choice("combine", kCombines, "rounds as one softmax (the paper), or their mean"),
           choice("hash", kHashes,
                  "rotations of each head, in factors above 128 buckets, or one that all share, unfactored")},
      .make =
          [](const OptionValues& values, double dropout) {
            if (dropout > 0)
              throw ConfigError(concat_text("model.attention_dropout = ", dropout,
                                            ": attention kind \"lsh\" does not drop weights; set it to 0"));
            return std::make_unique<LshKind>(lsh_options(values));
          },
      .check_length = check_length,
      .flops = flops};
}

}  // namespace tapeformer
