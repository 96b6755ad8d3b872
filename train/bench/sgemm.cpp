// Benchmark of sgemm on the matrix shapes of a training step, and of copying memory. Other benchmarks are
// compared with these rates.
#include <cstring>

#include "train/bench/bench.h"
#include "train/bench/gemm_work.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"

namespace tapeformer {
namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 20;  // much larger than the caches

double copy_rate(int64_t repeats) {
  const Tensor from = Tensor::full({kCopyBytes}, 1, DType::uint8),
               to = Tensor::zeros({kCopyBytes}, DType::uint8);
  const double seconds = median_seconds(repeats, [&] {
    parallel_for(kCopyBytes, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data<uint8_t>() + begin, from.data<uint8_t>() + begin, static_cast<size_t>(end - begin));
    });
  });
  return 2 * static_cast<double>(kCopyBytes) / seconds;  // each byte is read and written
}

Report run_sgemm(const BenchmarkArguments& arguments) {
  const auto repeats = arguments.options.get<int64_t>("repeats");
  const ModelChoice choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  const GemmWork work(training_products(choice.model, choice.batch * choice.model.max_length));
  std::vector<Report> rows;
  double seconds = 0;
  for (const GemmShape& shape : work.products()) {
    const double own = median_seconds(repeats, [&] { work.run(shape); });
    seconds += own;
    rows.push_back(Report()
                       .add("product", shape.name)
                       .add("m", shape.m)
                       .add("n", shape.n)
                       .add("k", shape.k)
                       .add("count", shape.count)
                       .add("seconds", own)
                       .add("gflops", shape.flops() / own / kGiga));
  }
  return Report()
      .add("threads", threads())
      .add("gflops", total_flops(work.products()) / seconds / kGiga)
      .add("copy_gigabytes_per_second", copy_rate(repeats) / kGiga)
      .add("products", rows);
}

}  // namespace

Benchmark sgemm_benchmark() {
  std::vector<OptionSpec> options = model_option_specs();
  options.push_back(
      {.name = "batch", .default_value = int64_t{10}, .help = "sequences", .min = 1, .max = 1 << 20});
  options.push_back(
      {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1});
  return {
      .name = "sgemm",
      .summary = "sgemm on the matrix shapes of a training step, and copying memory (bytes read and written)",
      .options = options,
      .run = run_sgemm};
}

}  // namespace tapeformer
