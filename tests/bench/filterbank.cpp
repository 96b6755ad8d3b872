// A benchmark of the computation of log-mel filterbank features on one thread. The input is random noise.
#include "data/audio/filterbank.h"
#include "core/random/rng.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

Report run_filterbank(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const int64_t rate = number("rate"), seconds = number("seconds");
  const Filterbank bank({.rate = rate, .bins = number("bins")});
  std::vector<float> samples(static_cast<size_t>(rate * seconds));
  const RandomStream stream(kInputSeed, "bench filterbank");
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(stream.uniform(i) - 0.5);
  const double took = measure_median_call_seconds(number("repeats"), [&] { bank.compute(samples); });
  return Report()
      .add("rate", rate)
      .add("frames", bank.count_frames(static_cast<int64_t>(samples.size())))
      .add("milliseconds", 1e3 * took)
      .add("times_real_time", static_cast<double>(seconds) / took);
}

}  // namespace

Benchmark make_filterbank_benchmark() {
  return {.name = "filterbank",
          .summary = "log-mel filterbank features of noise, on one thread",
          .options =
              {{.name = "rate",
                .default_value = int64_t{16000},
                .help = "samples per second",
                .min = 1000,
                .max = 1 << 20},
               {.name = "seconds",
                .default_value = int64_t{60},
                .help = "length of the noise",
                .min = 1,
                .max = 36000},
               {.name = "bins", .default_value = int64_t{40}, .help = "mel filters", .min = 3, .max = 1024},
               {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1}},
          .run = run_filterbank};
}

}  // namespace tapeformer
