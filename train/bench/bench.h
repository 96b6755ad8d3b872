// Benchmarks of `tapeformer bench`. Each benchmark has a name, options and a function that measures and
// returns a report. Times are medians over repeats, unless their name says otherwise. Ratios compare
// measurements of the same process with the same threads. To add a benchmark, write a file with a function
// that returns the Benchmark. Declare the function here, call it in benchmarks(), and list the file in
// CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/options.h"
#include "models/attention/attention.h"
#include "train/command_options.h"
#include "train/config/config.h"
#include "train/report.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// Conversion factors: milliseconds per second, microseconds per second, and units per giga-unit.
inline constexpr double kMilli = 1e3, kMicro = 1e6, kGiga = 1e9;
inline constexpr uint64_t kSeed = 1;  // seed of random inputs

// Arguments of a benchmark from the command line.
struct BenchmarkArguments {
  OptionValues options;       // values of Benchmark::options
  Device device = kCpu;       // the CPU unless Benchmark::on_devices or counts_device is true
  ConfigOverrides overrides;  // overrides of the config in the option "config"
  DataAccess data;
};

struct Benchmark {
  std::string name, summary;
  std::vector<OptionSpec> options;
  Report (*run)(const BenchmarkArguments& arguments);
  bool on_devices = false;         // whether the benchmark runs on the device in --device
  bool counts_device = false;      // whether the benchmark counts the launches and bytes of a CUDA device
  bool several_processes = false;  // whether mpirun may start several processes of the benchmark

  bool has_option(const std::string& option) const;
};

// The condition of options that have an effect only if --config is not given.
inline const OptionCondition kWithoutConfig{"config", {""}};

// Returns the option "precision" with the choices float32 and bfloat16.
OptionSpec precision_option(std::string default_value, std::string help);
// Applies run.precision to the device, and run.tf32 to a CUDA device. If the CPU does not support the
// precision, throws a ConfigError that names --precision.
void use_precision(const RunConfig& run, Device device);

// Returns the attention kind `name`, which is the value of the command-line option `option`. If the kind is
// unknown, throws a ConfigError that names the option.
const AttentionKind& kind_of_option(const std::string& option, const std::string& name);

// Returns all benchmarks in the order in which the help lists them.
const std::vector<Benchmark>& benchmarks();
// Returns the benchmark with this name. If there is none, throws a ConfigError that suggests a similar name.
const Benchmark& benchmark(const std::string& name);

// Runs a benchmark. Converts an OptionError of a model into a ConfigError. The error names the config key if
// the option "config" names a file, and otherwise the option of the benchmark.
Report run_benchmark(const Benchmark& benchmark, const BenchmarkArguments& arguments);

Benchmark attention_benchmark();
Benchmark attention_pattern_benchmark();
Benchmark ctc_benchmark();
Benchmark device_cost_benchmark();
Benchmark distributed_benchmark();
Benchmark generate_benchmark();
Benchmark kernel_accesses_benchmark();
Benchmark lsh_attention_benchmark();
Benchmark reversible_benchmark();
Benchmark lstm_benchmark();
Benchmark filterbank_benchmark();
Benchmark sgemm_benchmark();
Benchmark small_op_benchmark();
Benchmark speech_step_benchmark();
Benchmark stream_benchmark();
Benchmark text_benchmark();
Benchmark train_step_benchmark();

}  // namespace tapeformer
