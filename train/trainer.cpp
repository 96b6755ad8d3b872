#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/allocator.h"
#include "core/cuda/backend.h"
#include "core/files.h"
#include "core/log.h"

namespace tapeformer {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of all threads so far: unlike the time that passes, it does not grow with what else the machine does.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Keys that may change between a run and its continuation: they say how long, how often and where, not what.
bool may_change(const std::string& key) {
  static const auto* const kKeys = new std::vector<std::string>{"run.threads",
                                                                "run.device",
                                                                "run.name",
                                                                "run.cuda_graphs",
                                                                "train.steps",
                                                                "train.epochs",
                                                                "train.eval_every",
                                                                "train.eval_epochs",
                                                                "data.path",
                                                                "data.lexicon",
                                                                "data.feature_cache",
                                                                "train.log_every",
                                                                "train.keep_last",
                                                                "data.eval_limit",
                                                                "train.checkpoint_every",
                                                                "train.eval_batch_size",
                                                                "train.time_limit_minutes"};
  return std::find(kKeys->begin(), kKeys->end(), key) != kKeys->end();
}

int64_t total_steps(const Config& config, const Task& task) {
  const TrainConfig& t = config.train;
  if (t.steps > 0) return t.steps;
  const double steps = task.batches_in(t.epochs) / static_cast<double>(t.accumulate);
  return std::max<int64_t>(std::llround(steps), 1);
}

void wait_for(Device device) {
  if constexpr (kHasCuda)
    if (!device.is_cpu()) cuda::synchronize(device);
}

FolderLock lock_run_dir(const std::string& run_dir) try {
  return FolderLock(run_dir);
} catch (const FileError& error) {
  if (error.reason() != EWOULDBLOCK) throw;
  throw ConfigError("run directory " + run_dir +
                    ": another process trains in it; name another with --run-dir or run.name");
}

}  // namespace

Trainer::Trainer(Config config, TrainerOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      best_loss_(std::numeric_limits<double>::infinity()) {
  device_ = prepare_machine(config_.run);
  task_ = make_task(config_, {options_.data_dir, options_.allow_commands}, device_);
  total_steps_ = total_steps(config_, *task_);
  optimizer_ = std::make_unique<Optimizer>(config_.optimizer, task_->model().parameters());
  schedule_ = std::make_unique<Schedule>(config_.schedule, total_steps_);
  if (!device_.is_cpu() && config_.run.cuda_graphs)
    graphs_ = std::make_unique<StepGraphs>(device_, config_.train.accumulate);
}

Trainer::~Trainer() = default;

void Trainer::start_new_run() {
  if (std::filesystem::exists(options_.run_dir) && !std::filesystem::is_empty(options_.run_dir))
    throw ConfigError("run directory " + options_.run_dir.string() +
                      " is not empty: continue it with --resume, or name another with --run-dir or run.name");
  prepare_run_dir();
}

void Trainer::prepare_run_dir() const {
  std::filesystem::create_directories(options_.run_dir);
  remove_unfinished_checkpoints(options_.run_dir.string());
  drop_metrics_after(metrics_path(), step_);
  replace_file((options_.run_dir / "config.toml").string(), to_toml(config_));
}

std::string Trainer::metrics_path() const {
  return (options_.run_dir / "metrics.jsonl").string();
}

void Trainer::resume() {
  const std::string run_dir = options_.run_dir.string();
  if (checkpoint_steps(run_dir).empty()) {
    log_info("no checkpoint in ", run_dir, ": starting from the beginning");
    return prepare_run_dir();
  }
  const Checkpoint checkpoint(find_checkpoint(run_dir, false));
  const Config before = load_config(checkpoint.config_path(), {}, attention_catalogue(),
                                    {.unused = UnusedKeys::ignore_in_file});
  std::string contradictions;
  for (const std::string& key : differing_keys(before, config_))
    if (!may_change(key))
      contradictions += "\n  " + key + " = " + config_value_text(config_, key) + ", but the checkpoint has " +
                        config_value_text(before, key);
  if (!contradictions.empty())
    throw ConfigError("cannot resume from " + checkpoint.folder() +
                      " with another config; take these settings back, or choose another folder with "
                      "--run-dir (reproduce: --out):" +
                      contradictions);

  checkpoint.load_model(task_->model().parameters());
  checkpoint.load_optimizer(optimizer_->state());
  optimizer_->swap_average();
  load_state(checkpoint);
  prepare_run_dir();
  log_info("resumed from ", checkpoint.folder(), " at step ", step_, " of ", total_steps_);
}

void Trainer::load_state(const Checkpoint& checkpoint) try {
  const auto state = nlohmann::ordered_json::parse(checkpoint.state_json());
  const std::string description = task_->description();
  if (!description.empty() && state.at("task") != nlohmann::ordered_json::parse(description))
    throw ConfigError("cannot resume from " + checkpoint.folder() +
                      ": the training data is not what it was: its phones or statistics differ");
  step_ = saved_step_ = state.at("step").get<int64_t>();
  evaluated_step_ = state.at("evaluated_step").get<int64_t>();
  optimizer_->set_steps(state.at("optimizer_steps").get<int64_t>());
  if (!state.at("best_loss").is_null()) best_loss_ = state.at("best_loss").get<double>();
  seconds_ = state.at("seconds").get<double>();
  epoch_seconds_ = state.value("epoch_seconds", 0.0);
  epoch_cpu_seconds_ = state.value("epoch_cpu_seconds", 0.0);
  seconds_per_epoch_ = state.value("seconds_per_epoch", 0.0);
  schedule_->state = {state.at("plateau_factor").get<double>(), state.at("plateau_best").get<double>(),
                      state.at("plateau_bad_evaluations").get<int64_t>()};
} catch (const nlohmann::json::exception& error) {
  throw CheckpointError(checkpoint.folder() + "/state.json: " + error.what());
}

void Trainer::prepare_batches() {
  if (batches_prepared_) return;
  task_->prepare_batches(step_ * config_.train.accumulate, total_steps_ * config_.train.accumulate);
  batches_prepared_ = true;
}

bool Trainer::epoch_due(int64_t every) const {
  if (every == 0 || step_ == 0) return false;
  const int64_t batches = step_ * config_.train.accumulate;
  const int64_t done = task_->epochs_done(batches);
  return done / every > task_->epochs_done(batches - config_.train.accumulate) / every;
}

// `number`: of the batch
void Trainer::check_finite(double loss, int64_t step, int64_t number) const {
  if (std::isfinite(loss)) return;
  throw DivergedError(
      concat_text("the loss is ", std::isnan(loss) ? "not a number" : "infinite", " at step ", step,
                  ", training examples ", task_->examples_of(number),
                  saved_step_ >= 0 ? concat_text("; the checkpoint of step ", saved_step_, " is kept")
                                   : std::string("; no checkpoint was written before"),
                  ". Lower optimizer.lr, add schedule.warmup_steps or set optimizer.clip_norm."));
}

// Of the steps that are launched and come before the given one. What follows from a loss that is no number is
// at most one step of the weights, which no checkpoint gets: before one is written all losses are read.
void Trainer::read_losses(int64_t before_step) {
  while (!unread_losses_.empty() && unread_losses_.front().step < before_step) {
    const UnreadLosses losses = std::move(unread_losses_.front());
    unread_losses_.pop_front();
    const auto count = static_cast<int64_t>(losses.of_batches.size());
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double loss = losses.of_batches[static_cast<size_t>(i)].value();
      check_finite(loss, losses.step, losses.step * count + i);
      sum += loss / static_cast<double>(count);
    }
    last_loss_ = sum;
  }
}

// Forward and backward of the batches that were fetched, and the step of the optimizer.
StepOutputs Trainer::launch_step(bool training) {
  const int64_t micro_steps = config_.train.accumulate;
  StepOutputs outputs;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const int64_t number = step_ * micro_steps + micro;
    const ForwardContext context{.training = training,
                                 .seed = static_cast<uint64_t>(config_.run.seed),
                                 .step = static_cast<uint64_t>(number)};
    const BatchLoss batch = task_->loss(micro, context);
    if (device_.is_cpu()) check_finite(batch.loss.item(), step_, number);
    backward(batch.loss);
    outputs.losses.push_back(detach(batch.loss));
    outputs.tokens += batch.tokens;
  }
  outputs.grad_norm = optimizer_->apply(1 / static_cast<double>(micro_steps));
  return outputs;
}

Trainer::Step Trainer::train_step() {
  const int64_t micro_steps = config_.train.accumulate, dropout_steps = config_.train.dropout_steps;
  const bool training = dropout_steps == 0 || step_ < dropout_steps;
  prepare_batches();
  bool repeatable = graphs_ != nullptr;
  std::string layout = training ? "" : "without dropout ";
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const std::string of_batch = task_->fetch(step_ * micro_steps + micro, micro);
    repeatable = repeatable && !of_batch.empty();
    layout += of_batch + ";";
  }
  Step done;
  done.lr = config_.optimizer.lr * schedule_->factor(step_);
  optimizer_->prepare(done.lr);
  const auto launch = [&] { return launch_step(training); };
  const StepOutputs outputs = repeatable ? graphs_->run(layout, step_, launch) : launch();
  done.grad_norm = outputs.grad_norm;
  done.tokens = outputs.tokens;
  UnreadLosses losses{step_, {}};
  for (const Tensor& loss : outputs.losses) losses.of_batches.emplace_back(loss);
  unread_losses_.push_back(std::move(losses));
  read_losses(step_);
  ++step_;
  return done;
}

void Trainer::report(const Step& step) {
  const bool last = step_ == total_steps_, logged = due(config_.train.log_every) || last;
  if (logged || device_.is_cpu() || !last_loss_) read_losses(step_);
  const double speed = interval_seconds_ > 0 ? static_cast<double>(interval_tokens_) / interval_seconds_ : 0;
  progress_->update({.step = step_,
                     .loss = *last_loss_,
                     .bits_per_dim = task_->shown_bits(*last_loss_),
                     .tokens_per_second = speed,
                     .memory_bytes = allocator(device_).stats().peak,
                     .epoch = task_->epochs_done(step_ * config_.train.accumulate - 1) + 1,
                     .lr = step.lr});
  if (!logged) return;
  MetricRecord record{{"step", step_}, {"split", "train"}, {"loss_nats", *last_loss_}};
  task_->add_metrics(*last_loss_, record);
  const MetricRecord rest{{"lr", step.lr},
                          {"grad_norm", step.grad_norm.item()},
                          {"tokens_per_second", speed},
                          {"seconds", seconds_},
                          {"memory_bytes", allocator(device_).stats().peak}};
  record.insert(record.end(), rest.begin(), rest.end());
  metrics_->write(record);
  interval_tokens_ = 0;
  interval_seconds_ = 0;
}

void Trainer::report_epoch() {
  if (!task_->reports_epochs() || !epoch_due(1)) return;
  seconds_per_epoch_ = epoch_seconds_;
  epoch_seconds_ = 0;
  metrics_->write({{"step", step_},
                   {"split", "epoch"},
                   {"epoch", task_->epochs_done(step_ * config_.train.accumulate)},
                   {"seconds_per_epoch", seconds_per_epoch_},
                   {"cpu_seconds_per_epoch", epoch_cpu_seconds_}});
  epoch_cpu_seconds_ = 0;
}

void Trainer::evaluate_now() {
  read_losses(step_);
  optimizer_->swap_average();
  evaluation_ = task_->evaluate();
  optimizer_->swap_average();
  evaluated_step_ = step_;
  const TaskEvaluation& e = *evaluation_;
  schedule_->observe(e.criterion);
  MetricRecord record{{"step", step_}, {"split", e.split}};
  record.insert(record.end(), e.metrics.begin(), e.metrics.end());
  metrics_->write(record);
  progress_->message(concat_text("step ", step_, ": ", e.split, " ", e.text, " (", e.examples, " examples, ",
                                 duration_text(e.seconds), ")"));
}

// The checkpoint's model holds the averaged weights where there are any, so that whoever loads it evaluates
// those; the weights that training continues from are saved exchanged with them, as the optimizer's
// "average.NAME". A disk that is full must not end a run that can go on: the old checkpoint is intact, and
// the next one may succeed.
void Trainer::save(bool best, bool must_succeed) {
  read_losses(step_);
  nlohmann::ordered_json state{{"step", step_},
                               {"evaluated_step", evaluated_step_},
                               {"optimizer_steps", optimizer_->steps()},
                               {"best_loss", std::isfinite(best_loss_) ? nlohmann::ordered_json(best_loss_)
                                                                       : nlohmann::ordered_json()},
                               {"seconds", seconds_},
                               {"plateau_factor", schedule_->state.plateau_factor},
                               {"plateau_best", schedule_->state.best_loss},
                               {"plateau_bad_evaluations", schedule_->state.bad_evaluations}};
  if (task_->reports_epochs()) {
    state["epoch_seconds"] = epoch_seconds_;
    state["epoch_cpu_seconds"] = epoch_cpu_seconds_;
    state["seconds_per_epoch"] = seconds_per_epoch_;
  }
  if (const std::string description = task_->description(); !description.empty())
    state["task"] = nlohmann::ordered_json::parse(description);
  const auto as_map = [](const NamedTensors& list) {
    return std::map<std::string, Tensor>(list.begin(), list.end());
  };
  const std::string run_dir = options_.run_dir.string();
  optimizer_->swap_average();
  std::exception_ptr failure;
  try {
    save_checkpoint(run_dir, step_,
                    {as_map(task_->model().parameters()), as_map(optimizer_->state()), state.dump(2) + "\n",
                     to_toml(config_)});
    if (best) mark_best_checkpoint(run_dir, step_);
    prune_checkpoints(run_dir, config_.train.keep_last);
    saved_step_ = step_;
  } catch (const CheckpointError& error) {
    failure = std::current_exception();
    if (!must_succeed) progress_->message(error.what());
  }
  optimizer_->swap_average();
  if (failure && must_succeed) std::rethrow_exception(failure);
}

// Evaluation and checkpoint, where the step asks for them.
void Trainer::finish_step(bool last) {
  bool best = false;
  if ((evaluation_due() || last) && evaluated_step_ != step_) {
    evaluate_now();
    best = evaluation_->criterion < best_loss_;
    if (best) best_loss_ = evaluation_->criterion;
  }
  if (best || due(config_.train.checkpoint_every) || last) save(best, last);
}

TrainResult Trainer::run() {
  std::filesystem::create_directories(options_.run_dir);
  const FolderLock lock = lock_run_dir(options_.run_dir.string());
  if (options_.resume)
    resume();
  else
    start_new_run();
  metrics_ = std::make_unique<MetricsWriter>(metrics_path());
  progress_ = std::make_unique<Progress>(std::cerr, progress_style(options_.quiet), step_, total_steps_,
                                         Progress::Clock(), task_->speed_unit());
  const StopSignals signals;
  TrainResult result;
  result.total_steps = total_steps_;
  const double limit = config_.train.time_limit_minutes * 60;
  // A signal may have come between a step and its evaluation.
  if (step_ > 0 && evaluated_step_ != step_ && evaluation_due()) finish_step(step_ == total_steps_);
  while (step_ < total_steps_ && !result.time_is_up) {
    const auto start = Clock::now();
    const double cpu_start = cpu_seconds();
    const Step step = train_step();
    epoch_cpu_seconds_ += cpu_seconds() - cpu_start;
    const double took = seconds_since(start);
    seconds_ += took;
    interval_seconds_ += took;
    epoch_seconds_ += took;
    interval_tokens_ += step.tokens;
    report(step);
    report_epoch();
    result.stop_signal = signals.requested();
    if (result.stop_signal) break;
    result.time_is_up = limit > 0 && seconds_ >= limit;
    finish_step(step_ == total_steps_ || result.time_is_up);
  }
  if (result.stop_signal) save(false, true);
  progress_->finish();
  result.step = step_;
  result.evaluation = evaluation_;
  result.best_loss = best_loss_;
  result.seconds = seconds_;
  result.seconds_per_epoch = seconds_per_epoch_;
  return result;
}

DryRun Trainer::dry_run() {
  const int before = graphs_ ? 2 : 1;  // the second is recorded
  total_steps_ = std::max<int64_t>(total_steps_, before + 1);
  DryRun report{.parameters = parameter_count(task_->model()),
                .total_steps = total_steps_,
                .training_examples = task_->training_examples(),
                .evaluation_examples = task_->evaluation_examples()};
  allocator(device_).reset_peak();
  for (int i = 0; i < before; ++i) train_step();
  wait_for(device_);
  const auto start = Clock::now();
  train_step();
  wait_for(device_);
  read_losses(step_);
  report.loss = *last_loss_;
  report.seconds_per_step = seconds_since(start);
  report.memory_bytes = allocator(device_).stats().peak;
  report.seconds_in_all = report.seconds_per_step * static_cast<double>(report.total_steps);
  if (const double limit = config_.train.time_limit_minutes * 60; limit > 0)
    report.seconds_in_all = std::min(report.seconds_in_all, limit);
  return report;
}

}  // namespace tapeformer
