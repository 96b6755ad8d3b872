#include "train/bench/model_choice.h"

#include <algorithm>

#include "core/random/rng.h"
#include "core/threads/threads.h"
#include "train/build.h"

namespace tapeformer {
namespace {

// Returns the options of the model that are options of the benchmark, too.
std::vector<std::string> list_model_options() {
  return {"layers", "heads", "head_dim", "feedforward", "mixtures", "dropout"};
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

std::vector<OptionSpec> make_model_option_specs() {
  std::vector<OptionSpec> specs = {
      {.name = "config",
       .default_value = std::string(),
       .help = "file with the model, the batch size and the optimizer; replaces the other options except "
               "--precision"},
      make_precision_option("", "precision of the model; empty: the precision in --config, or float32"),
      {.name = "attention", .default_value = std::string("linear"), .help = "attention kind"},
      {.name = "length",
       .default_value = int64_t{783},
       .help = "predictions per sequence",
       .min = 1,
       .max = 1 << 24},
  };
  for (const std::string& name : list_model_options()) {
    const auto& options = find_model_kind("image").options;
    OptionSpec spec = *std::find_if(options.begin(), options.end(),
                                    [&](const OptionSpec& option) { return option.name == name; });
    spec.name = with_dashes(name);
    specs.push_back(std::move(spec));
  }
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
        load_config(path, arguments.overrides.config_settings,
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
  OptionValues values(find_model_kind("image").options);
  for (const std::string& name : list_model_options())
    values.set(name, options.values_by_name().at(with_dashes(name)));
  const auto& kind = options.get<std::string>("attention");
  choice.model = read_model_options<AutoregressiveModelOptions>(
      values, {{kind, find_attention_kind("--attention", kind).default_options()}});
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
