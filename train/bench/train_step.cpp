// Benchmark of a training step (forward, backward, clipping, optimizer) on random bytes. The step is compared
// with products of its matrix shapes in its precision. Steps and products alternate, so that other load on
// the machine affects both.
#include "core/allocator.h"
#include "core/system/machine.h"
#include "train/bench/bench.h"
#include "train/bench/gemm_work.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/build.h"
#include "train/loop/step_graphs.h"
#include "train/optimizer.h"

namespace tapeformer {
namespace {

constexpr int64_t kWarmUp = 2;  // later steps allocate no memory

// Training step of a model on a fixed batch, replayed as a CUDA graph if the config allows it.
class TrainingStep {
 public:
  TrainingStep(const ModelChoice& choice, Device device)
      : choice_(choice),
        model_(choice.model),
        replays_(!device.is_cpu() && choice.run.cuda_graphs),
        batch_(random_batch(choice.model, choice.batch, choice.seed)),
        graphs_(device, 1) {
    model_.initialize(choice.seed);
    model_.move(device);
    optimizer_ = std::make_unique<Optimizer>(choice.optimizer, model_.parameters());
    if (replays_) batch_.tokens = batch_.tokens.to(device);
  }

  void run() {
    optimizer_->prepare(choice_.optimizer.lr);
    if (replays_)
      graphs_.run({}, number_, [&] { return launch(); });
    else
      launch();
    ++number_;
  }
  const Module& model() const { return model_; }
  bool replays() const { return replays_; }

 private:
  StepOutputs launch() {
    const Tensor loss =
        model_.loss(batch_, {.training = true, .seed = choice_.seed, .step = static_cast<uint64_t>(number_)});
    backward(loss);
    return StepOutputs{{detach(loss)}, optimizer_->apply()};
  }

  const ModelChoice& choice_;
  AutoregressiveModel model_;
  bool replays_;
  std::unique_ptr<Optimizer> optimizer_;
  Batch batch_;
  StepGraphs graphs_;
  int64_t number_ = 0;
};

// Floating-point operations of a training step.
struct StepWork {
  double products, attention;
};

struct Timings {
  std::vector<double> steps;           // seconds
  std::vector<double> products_rates;  // floating-point operations per second
  std::vector<double> shares;          // rate of the step relative to the rate of the products
};

Timings measure(TrainingStep& step, const GemmWork& products, const StepWork& work, int64_t repeats,
                Device device) {
  products.run();
  Timings timings;
  for (int64_t i = 0; i < repeats; ++i) {
    timings.steps.push_back(seconds_of([&] { step.run(); }, device));
    timings.products_rates.push_back(work.products / seconds_of([&] { products.run(); }, device));
    timings.shares.push_back((work.products + work.attention) / timings.steps.back() /
                             timings.products_rates.back());
  }
  return timings;
}

Report run_train_step(const BenchmarkArguments& arguments) {
  const auto repeats = arguments.options.get<int64_t>("repeats");
  const ModelChoice choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  const Device device = arguments.device;
  const int64_t length = choice.model.max_length;
  set_precision(choice.run, device);
  TrainingStep step(choice, device);
  allocator(device).reset_peak();
  for (int64_t i = 0; i < kWarmUp; ++i) step.run();
  const int64_t peak = allocator(device).stats().peak, resident = peak_resident_bytes();

  const GemmWork products(training_products(choice.model, choice.batch * length), device);
  // The gradient of each operand of a product needs as many operations as the product.
  const StepWork work{total_flops(products.products()),
                      3 * attention_flops(choice.model, length) * static_cast<double>(choice.batch)};
  const Timings timings = measure(step, products, work, repeats, device);
  const double seconds = median(timings.steps), flops = work.products + work.attention;
  return Report()
      .add("device", device.to_string())
      .add("precision", choice.run.precision)
      .add("threads", threads())
      .add("graph", step.replays())
      .add("attention", choice.model.encoder.attention)
      .add("parameters", parameter_count(step.model()))
      .add("batch", choice.batch)
      .add("length", length)
      .add("seconds_per_step", seconds)
      .add("fastest_seconds_per_step", *std::min_element(timings.steps.begin(), timings.steps.end()))
      .add("tokens_per_second", static_cast<double>(choice.batch * length) / seconds)
      .add("gflop_per_step", flops / kGiga)
      .add("gflop_of_attention", work.attention / kGiga)
      .add("gflops", flops / seconds / kGiga)
      .add("sgemm_gflops", median(timings.products_rates) / kGiga)
      .add("share_of_sgemm", median(timings.shares))
      .add("peak_bytes", peak)
      .add("peak_resident_bytes", resident);
}

}  // namespace

Benchmark train_step_benchmark() {
  std::vector<OptionSpec> options = model_option_specs();
  options.push_back(
      {.name = "batch", .default_value = int64_t{10}, .help = "sequences", .min = 1, .max = 1 << 20});
  options.push_back(
      {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1});
  return {.name = "train-step",
          .summary = "a training step of a model on random bytes: time, share of the sgemm rate, memory",
          .options = options,
          .run = run_train_step,
          .on_devices = true};
}

}  // namespace tapeformer
