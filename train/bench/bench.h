// Benchmarks of `tapeformer bench`. Each benchmark has a name, options and a function that measures and
// returns a report. A reported time is the median over the repeats, unless the name of the field says
// otherwise. A reported ratio compares two measurements from the same process with the same number of
// threads. Benchmarks of single parts, for developers, are in tests/bench.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/options/options.h"
#include "models/attention/attention.h"
#include "train/command_options.h"
#include "train/config/config.h"
#include "train/report.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

inline constexpr double kMillisecondsPerSecond = 1e3, kMicrosecondsPerSecond = 1e6, kGiga = 1e9;
inline constexpr uint64_t kInputSeed = 1;  // seed of random inputs

inline constexpr int64_t kMaxAttentionPatternLength = 1024;  // maximum length for "attention-pattern"

// Arguments of a benchmark from the command line.
struct BenchmarkArguments {
  OptionValues options;       // values of Benchmark::options
  Device device = kCpu;       // the CPU unless Benchmark::accepts_device_option is true
  ConfigOverrides overrides;  // values that replace values of the config file in --config
  DataAccessOptions data_access;
};

struct Benchmark {
  std::string name, summary;
  std::vector<OptionSpec> options;
  Report (*run)(const BenchmarkArguments& arguments);
  bool accepts_device_option = false;     // whether the benchmark runs on the device in --device
  bool allow_multiple_processes = false;  // whether mpirun may start several processes of the benchmark
  std::string default_seed = "1";         // value of --seed without the option, for the help text
};

// The condition that --config is not given. Benchmark options with the condition kWithoutConfig have no
// effect if --config is given.
inline const OptionCondition kWithoutConfig{"config", {""}};

// Returns the option "precision" with the choices float32 and bfloat16.
OptionSpec make_precision_option(std::string default_value, std::string help);
// Sets the precision of matrix products on the device as run.precision and run.tf32 specify. The CPU ignores
// run.tf32. If the CPU does not support the precision, throws a ConfigError that names --precision.
void apply_precision(const RunConfig& run, Device device);

// Returns the attention kind `name`, which is the value of the command-line option `option`. If the kind is
// unknown, throws a ConfigError that names the option.
const AttentionKind& find_attention_kind(const std::string& option, const std::string& name);

// Loads the config of a benchmark of attention kinds from the file in the option "config". Throws ConfigError
// if the model has no attention layers.
Config load_attention_config(const BenchmarkArguments& arguments);

// Returns all benchmarks in the order in which the help lists them.
const std::vector<Benchmark>& list_benchmarks();
void register_benchmark(Benchmark benchmark);
// Returns the benchmark with this name. If there is none, throws a ConfigError that suggests a similar name.
const Benchmark& find_benchmark(const std::string& name);

// Runs a benchmark. Converts an OptionError of a model into a ConfigError. The error names the config key if
// the option "config" names a file, and otherwise the option of the benchmark.
Report run_benchmark(const Benchmark& benchmark, const BenchmarkArguments& arguments);

Benchmark make_attention_benchmark();
Benchmark make_attention_pattern_benchmark();
Benchmark make_distributed_benchmark();
Benchmark make_generation_benchmark();
Benchmark make_lstm_benchmark();
Benchmark make_small_op_benchmark();
Benchmark make_speech_step_benchmark();
Benchmark make_train_step_benchmark();

}  // namespace tapeformer
