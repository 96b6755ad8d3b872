#include "train/bench/bench.h"

#include "core/errors.h"

namespace tapeformer {

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
