// A benchmark of the overhead of one op: an addition of 16 elements, forward and backward.
#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

constexpr int64_t kElements = 16;

Report run_small_op(const BenchmarkArguments& arguments) {
  const auto ops = arguments.options.get<int64_t>("ops"), repeats = arguments.options.get<int64_t>("repeats");
  const ThreadCountScope one_thread(1);
  const Tensor x = Tensor::full({kElements}, 0.5), b = Tensor::full({kElements}, 0.25);
  const Tensor cotangent = Tensor::full({kElements}, 1);
  set_requires_grad(x);
  const double single = measure_median_call_seconds(repeats, [&] {
    for (int64_t i = 0; i < ops; ++i) backward(add(x, b), cotangent);
    set_gradient(x, {});
  });
  const double chain = measure_median_call_seconds(repeats, [&] {
    Tensor y = x;
    for (int64_t i = 0; i < ops; ++i) y = add(y, b);
    backward(y, cotangent);
    set_gradient(x, {});
  });
  const double forward = measure_median_call_seconds(repeats, [&] {
    const NoGradScope no_grad;
    for (int64_t i = 0; i < ops; ++i) add(x, b);
  });
  const double microseconds = 1e6 / static_cast<double>(ops);
  return Report()
      .add("threads", 1)
      .add("elements", kElements)
      .add("microseconds_per_op", single * microseconds)
      .add("microseconds_per_op_in_chain", chain * microseconds)
      .add("microseconds_unrecorded", forward * microseconds);
}

}  // namespace

Benchmark make_small_op_benchmark() {
  return {.name = "small-op",
          .summary =
              "an addition of 16 elements, forward and backward: one backward per op, and one backward for a "
              "chain of ops",
          .options =
              {{.name = "ops", .default_value = int64_t{10000}, .help = "ops per repeat", .min = 1},
               {.name = "repeats", .default_value = int64_t{15}, .help = "repeats for the median", .min = 1}},
          .run = run_small_op};
}

}  // namespace tapeformer
