// The benchmarks of `tapeformer bench`: a list of names, each with its own options and a function that
// measures and reports. All figures are medians over repeats, and ratios compare measurements of one run on
// the same threads. To add one: write its file, declare it here, list it in benchmarks() and in
// CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

inline constexpr double kMilli = 1e3, kMicro = 1e6,
                        kGiga = 1e9;  // what a figure is multiplied or divided by to be printed
inline constexpr uint64_t kSeed = 1;  // of random inputs

struct Benchmark {
  std::string name, summary;
  std::vector<OptionSpec> options;
  Report (*run)(const CommandLine& line);
  bool on_devices = false;  // measures the device of --device, which device_of names
};

// Throws DeviceError.
Device device_of(const CommandLine& line);

const std::vector<Benchmark>& benchmarks();
// Throws ConfigError with a suggestion for an unknown name.
const Benchmark& benchmark(const std::string& name);

Benchmark attention_benchmark();
Benchmark ctc_benchmark();
Benchmark generate_benchmark();
Benchmark lsh_attention_benchmark();
Benchmark reversible_benchmark();
Benchmark lstm_benchmark();
Benchmark filterbank_benchmark();
Benchmark sgemm_benchmark();
Benchmark small_op_benchmark();
Benchmark stream_benchmark();
Benchmark train_step_benchmark();

}  // namespace tapeformer
