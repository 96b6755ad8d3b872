#include "train/bench/bench.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/device_control.h"
#include "train/build.h"

namespace tapeformer {
namespace {

// A model option and the benchmark option that sets it. Error messages about the model option name the
// benchmark option instead. kOptionNames does not contain options for which both names are equal or differ
// only in "_" and "-".
struct OptionName {
  const char *model, *benchmark;
};
constexpr OptionName kOptionNames[] = {{"reversible", "attention"}, {"value_dim", "head-dim"}};

std::string format_problem_with_option(const Benchmark& benchmark, const OptionProblem& problem) {
  const std::string attention = "attention_options.";
  const bool of_kind = problem.option.starts_with(attention);
  const std::string option = of_kind ? problem.option.substr(attention.size()) : problem.option;
  std::string name = option;
  if (!has_option(benchmark.options, name)) std::replace(name.begin(), name.end(), '_', '-');
  for (const OptionName& known : kOptionNames)
    if (option == known.model) name = known.benchmark;
  if (has_option(benchmark.options, name)) return "--" + name + ": " + problem.message;
  // The benchmark has no option for the invalid value. If the value belongs to an option of the attention
  // kind, the error message names --attention, which selects the kind.
  return (of_kind ? "--attention: " : "") + option + ": " + problem.message;
}

std::vector<Benchmark>& benchmark_registry() {
  static auto& benchmarks = *new std::vector<Benchmark>{
      make_train_step_benchmark(),  make_attention_benchmark(), make_attention_pattern_benchmark(),
      make_generation_benchmark(),  make_lstm_benchmark(),      make_speech_step_benchmark(),
      make_distributed_benchmark(), make_small_op_benchmark()};
  return benchmarks;
}

}  // namespace

OptionSpec make_precision_option(std::string default_value, std::string help) {
  return {.name = "precision",
          .default_value = std::move(default_value),
          .help = std::move(help),
          .choices = {"float32", "bfloat16"}};
}

void apply_precision(const RunConfig& run, Device device) {
  if (!device.is_cpu()) return set_precision(run, device);
  try {
    set_precision(device, run.precision == "bfloat16" ? Precision::bfloat16 : Precision::float32);
  } catch (const DeviceError& error) {
    throw ConfigError("--precision " + run.precision + ": " + error.what());
  }
}

const AttentionKind& find_attention_kind(const std::string& option, const std::string& name) {
  try {
    return find_attention_kind(name);
  } catch (const ConfigError& error) {
    throw ConfigError(option + ": " + error.what());
  }
}

Config load_attention_config(const BenchmarkArguments& arguments) {
  const auto& path = arguments.options.get<std::string>("config");
  Config config = load_config(path, arguments.overrides.config_settings,
                              {.purpose = ConfigPurpose::benchmark, .device = arguments.overrides.device});
  if (const std::string reason = explain_unused_key(config, "model.attention"); !reason.empty())
    throw ConfigError(path + ": model.attention " + reason);
  return config;
}

const std::vector<Benchmark>& list_benchmarks() {
  return benchmark_registry();
}

void register_benchmark(Benchmark benchmark) {
  benchmark_registry().push_back(std::move(benchmark));
}

const Benchmark& find_benchmark(const std::string& name) {
  std::vector<std::string> names = {"list"};
  for (const Benchmark& known : list_benchmarks()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw ConfigError(describe_unknown_word("benchmark", name, names));
}

Report run_benchmark(const Benchmark& benchmark, const BenchmarkArguments& arguments) {
  const bool uses_config =
      has_option(benchmark.options, "config") && !arguments.options.get<std::string>("config").empty();
  if (uses_config) return translate_option_errors([&] { return benchmark.run(arguments); });
  try {
    return benchmark.run(arguments);
  } catch (const OptionError& error) {
    throw ConfigError(format_problem_with_option(benchmark, error.problem()));
  }
}

}  // namespace tapeformer
