#include "train/bench/bench.h"

#include "core/device_control.h"
#include "core/errors.h"
#include "train/build.h"

namespace tapeformer {

OptionSpec precision_option(std::string default_value, std::string help) {
  return {.name = "precision",
          .default_value = std::move(default_value),
          .help = std::move(help),
          .choices = {"float32", "bfloat16"}};
}

void use_precision(const RunConfig& run, Device device) {
  if (!device.is_cpu()) return set_precision(run, device);
  try {
    set_precision(device, run.precision == "bfloat16" ? Precision::bfloat16 : Precision::float32);
  } catch (const DeviceError& error) {
    throw ConfigError("--precision " + run.precision + ": " + error.what());
  }
}

const std::vector<Benchmark>& benchmarks() {
  static const auto* const list = new std::vector<Benchmark>{
      sgemm_benchmark(),         small_op_benchmark(),   train_step_benchmark(), attention_benchmark(),
      lsh_attention_benchmark(), generate_benchmark(),   reversible_benchmark(), ctc_benchmark(),
      lstm_benchmark(),          filterbank_benchmark(), stream_benchmark()};
  return *list;
}

const Benchmark& benchmark(const std::string& name) {
  std::vector<std::string> names = {"list"};
  for (const Benchmark& known : benchmarks()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw ConfigError(unknown_text("benchmark", name, names));
}

}  // namespace tapeformer
