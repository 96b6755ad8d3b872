// A benchmark of products with the matrix shapes of a training step, and of copies of memory. The products
// use the precision of the model, and the same library as linear layers in this precision. The rates that
// this benchmark measures are a reference for the results of other benchmarks.
#include "tests/bench/benchmarks.h"
#include "train/bench/gemm_work.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/bench/roofline.h"

namespace tapeformer {
namespace {

double copy_rate(int64_t repeats) {
  const CopyBenchmark copy;
  copy.measure_bytes_per_second();
  std::vector<double> rates;
  for (int64_t i = 0; i < repeats; ++i) rates.push_back(copy.measure_bytes_per_second());
  return compute_median(rates);
}

Report run_sgemm(const BenchmarkArguments& arguments) {
  const auto repeats = arguments.options.get<int64_t>("repeats");
  const BenchmarkedModel choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  apply_precision(choice.run, kCpu);
  const GemmRunner work(list_training_gemms(choice.model, choice.batch_size * choice.model.max_length));
  std::vector<Report> rows;
  double seconds = 0;
  for (const GemmShape& shape : work.products()) {
    const double product_seconds = measure_median_call_seconds(repeats, [&] { work.run(shape); });
    seconds += product_seconds;
    rows.push_back(Report()
                       .add("product", shape.name)
                       .add("m", shape.m)
                       .add("n", shape.n)
                       .add("k", shape.k)
                       .add("count", shape.product_count)
                       .add("seconds", product_seconds)
                       .add("gflops", shape.flop_count() / product_seconds / kGiga));
  }
  return Report()
      .add("threads", get_thread_count())
      .add("precision", choice.run.precision)
      .add("gflops", sum_flops(work.products()) / seconds / kGiga)
      .add("copy_gigabytes_per_second", copy_rate(repeats) / kGiga)
      .add("products", rows);
}

}  // namespace

Benchmark make_sgemm_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  options.push_back(make_batch_option("sequences"));
  options.push_back(
      {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1});
  return {
      .name = "sgemm",
      .summary =
          "products of a training step by oneDNN or OpenBLAS, and copying memory (bytes read and written)",
      .options = options,
      .run = run_sgemm};
}

}  // namespace tapeformer
