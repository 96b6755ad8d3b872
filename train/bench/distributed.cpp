// A benchmark of data-parallel training. It measures the time of a data-parallel step, of a step without
// all_reduce, and of a step of a single process that uses all threads. It also measures the bandwidths of
// all_reduce and of a memory copy.
#include <algorithm>

#include "autograd/tape.h"
#include "core/system/log.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/distributed/gather.h"
#include "train/distributed/gradient_reducer.h"
#include "train/distributed/processes.h"
#include "train/optimization/optimizer.h"

namespace tapeformer {
namespace {

// A model with its optimizer and a batch of random bytes.
class Replica {
 public:
  Replica(const BenchmarkedModel& choice, int64_t batch, Communicator& processes, bool bfloat16)
      : choice_(choice), model_(choice.model), batch_(make_random_batch(choice.model, batch, choice.seed)) {
    model_.initialize(choice.seed);
    optimizer_ =
        std::make_unique<Optimizer>(choice.optimizer, model_.parameters(), model_.undecayed_parameters());
    reducer_ = std::make_unique<GradientReducer>(processes, strip_names(model_.parameters()),
                                                 ReducerOptions{.use_bfloat16 = bfloat16});
  }

  // Runs one training step. If `together` is true, sums the gradients over all processes.
  void step(bool together) {
    const Tensor loss = model_.compute_loss(
        batch_, {.training = true, .seed = choice_.seed, .step = static_cast<uint64_t>(number_++)});
    if (together) {
      reducer_->begin_step();
      backward(loss, {}, {.on_complete = [this](const Tensor& leaf) { reducer_->mark_complete(leaf); }});
      reducer_->finish_step();
    } else {
      backward(loss);
    }
    optimizer_->step(choice_.optimizer.lr);
  }
  const GradientReducer& reducer() const { return *reducer_; }
  const Module& model() const { return model_; }

 private:
  const BenchmarkedModel& choice_;
  AutoregressiveModel model_;
  Batch batch_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientReducer> reducer_;
  int64_t number_ = 0;
};

// Returns the seconds that f() takes on the slowest process. All processes start at the same time.
template <class F>
double measure_slowest_process(Communicator& processes, F&& f) {
  processes.barrier();
  return all_reduce_max(processes, measure_call_seconds(f));
}

struct StepTimes {
  std::vector<double> together, alone, one_process, reduce, copy;

  // Returns one ratio per round, in ascending order. The ratio of a round is the time of a step without
  // all_reduce divided by the time of a data-parallel step.
  std::vector<double> ratios() const {
    std::vector<double> list;
    for (size_t i = 0; i < alone.size(); ++i) list.push_back(alone[i] / together[i]);
    std::sort(list.begin(), list.end());
    return list;
  }
};

// Returns the times of `repeats` rounds, in seconds. Each round measures one data-parallel step, one step
// without all_reduce, one step of a single process with `all_threads` threads, one all_reduce, and one copy.
// The five measurements alternate, so that other load on the machine affects all five measurements. If
// `bfloat16` is true, the processes sum their gradients in bfloat16.
StepTimes measure(const BenchmarkedModel& choice, int64_t repeats, Communicator& processes, bool bfloat16,
                  int all_threads) {
  Replica replica(choice, choice.batch_size / processes.size(), processes, bfloat16);
  std::unique_ptr<Replica> whole;
  if (processes.is_first()) whole = std::make_unique<Replica>(choice, choice.batch_size, processes, false);
  const int64_t elements = replica.reducer().count_bytes_per_step() / static_cast<int64_t>(sizeof(float));
  const Tensor buffer = Tensor::zeros({elements}), copied = Tensor::zeros({elements});
  const auto one_process = [&] {
    if (!whole) return;
    const ThreadCountScope scope(all_threads);
    whole->step(false);
  };
  StepTimes times;
  for (int64_t i = -1; i < repeats; ++i) {  // the first round is a warm-up and is not recorded
    StepTimes round;
    round.together = {measure_slowest_process(processes, [&] { replica.step(true); })};
    round.alone = {measure_slowest_process(processes, [&] { replica.step(false); })};
    round.one_process = {measure_slowest_process(processes, one_process)};
    round.reduce = {measure_slowest_process(processes, [&] { processes.all_reduce(buffer); })};
    round.copy = {measure_slowest_process(processes, [&] { copied.copy_from(buffer); })};
    if (i < 0) continue;
    for (const auto list : {&StepTimes::together, &StepTimes::alone, &StepTimes::one_process,
                            &StepTimes::reduce, &StepTimes::copy})
      (times.*list).push_back((round.*list).front());
  }
  return times;
}

Report run_distributed(const BenchmarkArguments& arguments) {
  const ProcessGroup& joined = init_process_group();
  Communicator& processes = *joined.communicator;
  if (processes.size() < 2)
    throw ConfigError(
        "benchmark \"distributed\" needs several processes: mpirun -n 2 tapeformer bench distributed");
  const BenchmarkedModel choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  require_divisible_batch_size("--batch", choice.batch_size, processes);
  const bool bfloat16 = arguments.options.get<std::string>("reduce-dtype") == "bfloat16";
  const int own_threads = arguments.overrides.threads > 0 ? static_cast<int>(arguments.overrides.threads)
                                                          : joined.default_thread_count;
  const ThreadCountScope scope(own_threads);
  const int all_threads = own_threads * processes.size();
  const size_t processors = joined.locations[static_cast<size_t>(processes.rank())].processors.size();
  const StepTimes times =
      measure(choice, arguments.options.get<int64_t>("repeats"), processes, bfloat16, all_threads);
  const Replica replica(choice, 1, processes, bfloat16);
  const double together = compute_median(times.together), reduce = compute_median(times.reduce);
  const std::vector<double> ratios = times.ratios();
  const auto bytes = static_cast<double>(replica.reducer().count_bytes_per_step());
  Report report;
  report.add("processes", processes.size())
      .add("threads_per_process", own_threads)
      .add("attention", join_kind_names(choice.model.encoder.attention))
      .add("parameters", count_parameters(replica.model()))
      .add("batch", choice.batch_size)
      .add("reduce_dtype", bfloat16 ? "bfloat16" : "float32")
      .add("seconds_together", together)
      .add("seconds_alone", compute_median(times.alone))
      .add("ratio_to_limit", compute_median(ratios))
      .add("lowest_ratio", ratios.front())
      .add("highest_ratio", ratios.back());
  if (processors >= static_cast<size_t>(all_threads))
    report.add("threads_of_one_process", all_threads)
        .add("seconds_one_process", compute_median(times.one_process))
        .add("speedup_over_one_process", compute_median(times.one_process) / together);
  else
    log_info("one process is not measured, because it is bound to ", processors,
             " processors; use mpirun --bind-to none");
  return report.add("reduced_bytes", replica.reducer().count_bytes_per_step())
      .add("buckets", replica.reducer().bucket_count())
      .add("all_reduce_seconds", reduce)
      .add("all_reduce_gb_per_second", bytes / reduce / kGiga)
      .add("copy_gb_per_second", bytes / compute_median(times.copy) / kGiga);
}

}  // namespace

Benchmark make_distributed_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  options.push_back(make_batch_option("total sequences of all processes"));
  options.push_back({.name = "reduce-dtype",
                     .default_value = std::string("float32"),
                     .help = "dtype in which the processes sum their gradients",
                     .choices = {"float32", "bfloat16"}});
  options.push_back(
      {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1});
  return {
      .name = "distributed",
      .summary =
          "a training step of several processes (mpirun -n N), compared with independent processes and with "
          "one process; all_reduce, compared with a copy in memory",
      .options = options,
      .run = run_distributed,
      .allow_multiple_processes = true};
}

}  // namespace tapeformer
