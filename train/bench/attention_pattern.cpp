// The benchmark "attention-pattern", which draws a picture of attention weights. The picture has a row for
// each query and a column for each key.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "autograd/tape.h"
#include "core/random/random.h"
#include "data/files/file.h"
#include "data/images/png.h"
#include "train/bench/bench.h"
#include "train/build.h"

namespace tapeformer {
namespace {

constexpr int64_t kHeadDim = 64;
// A query attends to a key if the weight of the key exceeds kAttended times the largest weight of the query.
constexpr double kAttended = 1e-6;

// Returns the attention weights of one head as a matrix of shape (queries, keys). The parameters have their
// initial values, and the queries and keys are random.
//
// The weight of a key is measured by changing the value of this key from 0 to a random vector, while all
// other values are 0. For each query, the weight is the norm of the change of the result divided by the norm
// of the random vector.
std::vector<double> measure_attention_weights(const AttentionKind& kind, const OptionValues& options,
                                              int64_t length) {
  const NoGradScope no_grad;
  const std::unique_ptr<Attention> attention =
      kind.make(options, {.heads = 1, .dim = kHeadDim, .max_length = length, .rotary = true});
  attention->initialize(kInputSeed);
  attention->convert(DType::float64);
  const auto random = [&](const char* name) {
    return randn({1, length, 1, kHeadDim}, RandomStream(kInputSeed, name), DType::float64);
  };
  const Tensor q = random("q"), k = kind.capabilities.shares_query_key ? q : random("k"),
               changes = random("v"), x = random("x").view({1, length, kHeadDim});
  const AttentionMask mask{.causal = static_cast<bool>(kind.capabilities.causal), .key_lengths = {}};
  const auto result = [&](const Tensor& v) {
    return attention->forward_with_input(x, q, k, v, mask, {}, "layers.0").to_vector();
  };
  const Tensor v = Tensor::zeros(q.shape(), DType::float64);
  const std::vector<double> unchanged = result(v);
  std::vector<double> weights(static_cast<size_t>(length * length));
  for (int64_t key = 0; key < length; ++key) {
    double* const value = v.data<double>() + key * kHeadDim;
    std::copy_n(changes.data<double>() + key * kHeadDim, kHeadDim, value);
    const double norm = std::sqrt(std::inner_product(value, value + kHeadDim, value, 0.0));
    const std::vector<double> changed = result(v);
    for (int64_t query = 0; query < length; ++query) {
      double square = 0;
      for (int64_t i = query * kHeadDim; i < (query + 1) * kHeadDim; ++i) {
        const double change = changed[static_cast<size_t>(i)] - unchanged[static_cast<size_t>(i)];
        square += change * change;
      }
      weights[static_cast<size_t>(query * length + key)] = std::sqrt(square) / norm;
    }
    std::fill_n(value, kHeadDim, 0.0);
  }
  return weights;
}

// Returns a picture of length x length pixels, as a tensor of shape (1, length * length). Row i of the
// picture shows the weights of query i. The largest weight of a row is black, and weight 0 is white. The
// darkness of a pixel is the square root of the ratio of its weight to the largest weight of the row.
Tensor make_picture(const std::vector<double>& weights, int64_t length) {
  const Tensor picture = Tensor::empty({1, length * length}, DType::uint8);
  for (int64_t row = 0; row < length; ++row) {
    const double* const row_weights = weights.data() + row * length;
    const double largest = *std::max_element(row_weights, row_weights + length);
    for (int64_t i = 0; i < length; ++i)
      picture.data<uint8_t>()[row * length + i] = static_cast<uint8_t>(
          std::lround(255 * (1 - (largest > 0 ? std::sqrt(row_weights[i] / largest) : 0))));
  }
  return picture;
}

// Returns the mean number of keys to which a query attends.
double count_attended_keys(const std::vector<double>& weights, int64_t length) {
  int64_t attended = 0;
  for (int64_t row = 0; row < length; ++row) {
    const double* const row_weights = weights.data() + row * length;
    const double largest = *std::max_element(row_weights, row_weights + length);
    attended +=
        std::count_if(row_weights, row_weights + length, [&](double w) { return w > kAttended * largest; });
  }
  return static_cast<double>(attended) / static_cast<double>(length);
}

Report run_attention_pattern(const BenchmarkArguments& arguments) {
  const auto length = arguments.options.get<int64_t>("length");
  const auto& out = arguments.options.get<std::string>("out");
  if (arguments.options.get<std::string>("config").empty())
    throw ConfigError("attention-pattern needs --config");
  if (!out.empty()) refuse_to_replace_inputs({out}, {arguments.options.get<std::string>("config")});
  const Config config = load_attention_config(arguments);
  const auto& [name, options] = *config.attention.find(config.model.attention.front());
  check_attention_length(name, options, length);
  const std::vector<double> weights = measure_attention_weights(find_attention_kind(name), options, length);
  if (!out.empty())
    write_png(out, make_image_grid(make_picture(weights, length), length, length, 1,
                                   {.scale = arguments.options.get<int64_t>("scale"), .gap = 1}));
  const double keys = count_attended_keys(weights, length);
  return Report()
      .add("kind", name)
      .add("causal", static_cast<bool>(find_attention_kind(name).capabilities.causal))
      .add("length", length)
      .add("keys_per_query", keys)
      .add("share_of_pairs", keys / static_cast<double>(length));
}

}  // namespace

Benchmark make_attention_pattern_benchmark() {
  return {.name = "attention-pattern",
          .summary =
              "the attention weights of a kind with random queries and keys, as a picture with a row "
              "for each query, and the mean number of keys to which a query attends; with a causal mask if "
              "the kind supports one",
          .options = {{.name = "config",
                       .default_value = std::string(),
                       .help = "file with the kind and its options; of several kinds, the first"},
                      {.name = "length",
                       .default_value = int64_t{64},
                       .help = "number of tokens",
                       .min = 1,
                       .max = kMaxAttentionPatternLength},
                      {.name = "scale",
                       .default_value = int64_t{2},
                       .help = "side in pixels of the square of a weight",
                       .min = 1,
                       .max = 64},
                      {.name = "out", .default_value = std::string(), .help = "PNG file of the picture"}},
          .run = run_attention_pattern};
}

}  // namespace tapeformer
