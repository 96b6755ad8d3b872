#include "train/bench/model_choice.h"

#include <algorithm>

#include "core/random/rng.h"
#include "core/threads/threads.h"
#include "ops/kernels/logistic_mixture.h"
#include "train/build.h"

namespace tapeformer {

std::vector<OptionSpec> make_model_option_specs() {
  std::vector<OptionSpec> specs = {
      {.name = "config",
       .default_value = std::string(),
       .help = "file with the model, the batch size and the optimizer; replaces the other options except "
               "--precision"},
      make_precision_option("", "precision of the model; empty: the precision in --config, or float32"),
      {.name = "layers", .default_value = int64_t{8}, .help = "encoder layers", .min = 1, .max = 1000},
      {.name = "heads", .default_value = int64_t{8}, .help = "attention heads", .min = 1, .max = 1024},
      {.name = "head-dim",
       .default_value = int64_t{32},
       .help = "dimensions of a head",
       .min = 1,
       .max = 1024},
      {.name = "feedforward",
       .default_value = int64_t{1024},
       .help = "hidden dimensions of the feed-forward block",
       .min = 1,
       .max = 1 << 20},
      {.name = "mixtures",
       .default_value = int64_t{10},
       .help = "logistics per predicted byte",
       .min = 1,
       .max = kMaxMixtures},
      {.name = "attention", .default_value = std::string("linear"), .help = "attention kind"},
      {.name = "dropout", .default_value = 0.1, .help = "dropout of the training step", .min = 0, .max = 0.9},
      {.name = "length",
       .default_value = int64_t{783},
       .help = "predictions per sequence",
       .min = 1,
       .max = 1 << 24},
  };
  for (OptionSpec& spec : specs)
    if (spec.name != "config" && spec.name != "precision") spec.used_if = kWithoutConfig;
  return specs;
}

OptionSpec make_batch_option(std::string help) {
  return {.name = "batch",
          .default_value = int64_t{10},
          .help = std::move(help),
          .min = 1,
          .max = 1 << 20,
          .used_if = kWithoutConfig};
}

BenchmarkedModel choose_model(const BenchmarkArguments& arguments, int64_t batch_size) {
  const OptionValues& options = arguments.options;
  BenchmarkedModel choice;
  choice.seed = static_cast<uint64_t>(arguments.overrides.seed.value_or(1));
  const auto& precision = options.get<std::string>("precision");
  if (const auto& path = options.get<std::string>("config"); !path.empty()) {
    const Config config =
        load_config(path, arguments.overrides.config_settings, make_attention_catalogue(),
                    {.purpose = ConfigPurpose::benchmark, .device = arguments.overrides.device});
    if (config.model.type != "image" && config.model.type != "sequence")
      throw ConfigError(path + ": expected a model of images or sequences, found a model of type \"" +
                        config.model.type + "\"");
    choice.model = make_model_options(config, get_dataset_info(config));
    choice.optimizer = config.optimizer;
    choice.run = config.run;
    if (!precision.empty()) choice.run.precision = precision;
    choice.batch_size = config.data.batch_size;
    return choice;
  }
  if (!arguments.overrides.config_settings.empty()) throw ConfigError("--set needs --config");
  EncoderOptions& encoder = choice.model.encoder;
  encoder.layers = options.get<int64_t>("layers");
  encoder.heads = options.get<int64_t>("heads");
  encoder.head_dim = options.get<int64_t>("head-dim");
  encoder.feedforward = options.get<int64_t>("feedforward");
  const auto& kind = options.get<std::string>("attention");
  encoder.attention = {{kind, find_attention_kind("--attention", kind).default_options()}};
  encoder.dropout = options.get<double>("dropout");
  choice.model.mixtures = options.get<int64_t>("mixtures");
  choice.model.max_length = options.get<int64_t>("length");
  if (!precision.empty()) choice.run.precision = precision;
  choice.batch_size = batch_size;
  return choice;
}

Batch make_random_batch(const AutoregressiveModelOptions& model, int64_t batch, uint64_t seed) {
  Batch result;
  result.tokens = Tensor::empty({batch, model.max_length + 1}, DType::uint8);
  const RandomStream stream(seed, "benchmark tokens");
  const auto values = static_cast<uint32_t>(std::min<int64_t>(model.vocabulary_size, 256));
  constexpr int64_t block_bytes = sizeof(PhiloxBlock);
  constexpr int64_t blocks_per_task = 1 << 14;
  uint8_t* const tokens = result.tokens.data<uint8_t>();
  const int64_t count = result.tokens.numel();
  parallel_for((count + block_bytes - 1) / block_bytes, blocks_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock bits = stream.block(static_cast<uint64_t>(block));
      const int64_t first = block * block_bytes;
      for (int64_t i = 0; i < std::min(block_bytes, count - first); ++i)
        tokens[first + i] =
            static_cast<uint8_t>((bits[static_cast<size_t>(i / 4)] >> (8 * (i % 4)) & 0xFF) % values);
    }
  });
  return result;
}

}  // namespace tapeformer
