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
#include "core/cuda/transfers.h"
#include "core/system/log.h"
#include "train/finite.h"

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

std::string checked_description(const Task& task) try {
  return task.description();
} catch (const nlohmann::json::exception&) {
  throw DataError("a checkpoint cannot describe the training data: a phone is not valid UTF-8");
}

// Returns whether two values of Task::description() are equal.
bool same_task(const std::string& saved, const std::string& current) {
  using Json = nlohmann::ordered_json;
  if (saved.empty()) return false;
  const Json before = Json::parse(saved);
  Json now = Json::parse(current);
  // Checkpoints of older versions do not have the length of the longest utterance.
  if (!before.contains("longest_frames")) now.erase("longest_frames");
  return before == now;
}

}  // namespace

Trainer::Trainer(Config config, TrainerOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      best_loss_(std::numeric_limits<double>::infinity()) {
  require_utf8(config_, options_.run_dir.string());
  device_ = prepare_machine(config_.run);
  task_ = make_task(config_, {options_.data_dir, options_.allow_commands}, device_);
  total_steps_ = total_steps(config_, *task_);
  description_ = checked_description(*task_);
  optimizer_ = std::make_unique<Optimizer>(config_.optimizer, task_->model().parameters());
  schedule_ = std::make_unique<Schedule>(config_.schedule, total_steps_);
  if (!device_.is_cpu() && config_.run.cuda_graphs)
    graphs_ = std::make_unique<StepGraphs>(device_, config_.train.accumulate);
}

Trainer::~Trainer() = default;

void Trainer::start_new_run(const RunDirectory& directory) {
  if (!directory.is_empty())
    throw ConfigError("run directory " + options_.run_dir.string() +
                      " is not empty: continue it with --resume, or name another with --run-dir or run.name");
  directory.prepare(config_, 0, false);
}

void Trainer::resume(const RunDirectory& directory) {
  const std::string run_dir = options_.run_dir.string();
  if (checkpoint_steps(run_dir).empty()) {
    log_info("no checkpoint in ", run_dir, ": starting from the beginning");
    return directory.prepare(config_, 0, false);
  }
  const Checkpoint checkpoint(find_checkpoint(run_dir, false));
  checkpoint.check_config();
  const Config before = load_config(checkpoint.config_path(), {}, attention_catalogue(),
                                    {.unused = UnusedKeys::ignore_in_file});
  check_same_run(before, config_, checkpoint.folder());
  checkpoint.load_model(task_->model().parameters());
  checkpoint.load_optimizer(optimizer_->state());
  check_finite(task_->model().parameters(), checkpoint.folder());
  check_finite(optimizer_->state(), checkpoint.folder());
  optimizer_->swap_average();
  load_state(checkpoint);
  directory.prepare(config_, step_, evaluated_step_ == step_);
  log_info("resumed from ", checkpoint.folder(), " at step ", step_, " of ", total_steps_);
}

void Trainer::load_state(const Checkpoint& checkpoint) {
  const TrainingState state = checkpoint.state();
  if (!description_.empty() && !same_task(state.task, description_))
    throw ConfigError("cannot resume from " + checkpoint.folder() +
                      ": the training data is not what it was: its phones or statistics differ");
  step_ = saved_step_ = state.step;
  evaluated_step_ = state.evaluated_step;
  optimizer_->set_steps(state.optimizer_steps);
  if (state.best_loss) best_loss_ = *state.best_loss;
  seconds_ = state.seconds;
  const TrainingState::Epochs epochs = state.epochs.value_or(TrainingState::Epochs{});
  epoch_seconds_ = epochs.seconds;
  epoch_cpu_seconds_ = epochs.cpu_seconds;
  seconds_per_epoch_ = epochs.last_seconds;
  schedule_->state = state.schedule;
}

TrainingState Trainer::state() const {
  TrainingState state{.step = step_,
                      .evaluated_step = evaluated_step_,
                      .optimizer_steps = optimizer_->steps(),
                      .seconds = seconds_,
                      .schedule = schedule_->state,
                      .task = description_};
  if (std::isfinite(best_loss_)) state.best_loss = best_loss_;
  if (task_->reports_epochs())
    state.epochs = {
        .seconds = epoch_seconds_, .cpu_seconds = epoch_cpu_seconds_, .last_seconds = seconds_per_epoch_};
  return state;
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

std::string Trainer::kept_checkpoint_text() const {
  return (saved_step_ >= 0 ? concat_text("; the checkpoint of step ", saved_step_, " is kept")
                           : std::string("; no checkpoint was written before")) +
         ". Lower optimizer.lr, add schedule.warmup_steps or set optimizer.clip_norm.";
}

// Throws DivergedError if the loss is not finite. `number` is the number of the batch.
void Trainer::check_loss(double loss, int64_t step, int64_t number) const {
  if (std::isfinite(loss)) return;
  throw DivergedError(concat_text("the loss is ", std::isnan(loss) ? "not a number" : "infinite", " at step ",
                                  step, ", training examples ", task_->examples_of(number),
                                  kept_checkpoint_text()));
}

void Trainer::check_grad_norm(double norm, int64_t step) const {
  if (std::isfinite(norm)) return;
  throw DivergedError(concat_text("the norm of the gradients is ",
                                  std::isnan(norm) ? "not a number" : "infinite", " at step ", step,
                                  kept_checkpoint_text()));
}

void Trainer::check_weights(const NamedTensors& tensors) const {
  if (const auto found = find_non_finite(tensors))
    throw DivergedError(concat_text(*found, " after ", step_, " steps", kept_checkpoint_text()));
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
      check_loss(loss, losses.step, losses.step * count + i);
      sum += losses.shares[static_cast<size_t>(i)] * loss;
    }
    check_grad_norm(losses.grad_norm.value(), losses.step);
    last_loss_ = sum;
  }
}

// Returns the weight of each fetched batch in the loss of the step, so that the gradient equals that of one
// batch with all examples. Copies the weights to `shares_`, where a captured graph reads them.
std::vector<double> Trainer::shares_of_batches() {
  const int64_t micro_steps = config_.train.accumulate;
  if (micro_steps == 1) return {1};
  std::vector<double> shares;
  double total = 0;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    shares.push_back(task_->loss_count(micro));
    total += shares.back();
  }
  for (double& share : shares) share = total > 0 ? share / total : 0;
  if (!shares_.defined()) shares_ = Tensor::empty({micro_steps}, DType::float64, device_);
  shares_.copy_from(Tensor::from(shares, {micro_steps}));
  return shares;
}

// Forward and backward of the batches that were fetched, and the step of the optimizer.
StepOutputs Trainer::launch_step(bool with_dropout) {
  const int64_t micro_steps = config_.train.accumulate;
  StepOutputs outputs;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const int64_t number = step_ * micro_steps + micro;
    const ForwardContext context{.training = true,
                                 .dropout_off = !with_dropout,
                                 .seed = static_cast<uint64_t>(config_.run.seed),
                                 .step = static_cast<uint64_t>(number)};
    const BatchLoss batch = task_->loss(micro, context);
    if (device_.is_cpu()) check_loss(batch.loss.item(), step_, number);
    if (shares_.defined())
      backward(batch.loss, shares_.view(batch.loss.shape(), {}, micro).to(batch.loss.dtype()));
    else
      backward(batch.loss);
    outputs.losses.push_back(detach(batch.loss));
    outputs.tokens += batch.tokens;
  }
  outputs.grad_norm = optimizer_->apply();
  return outputs;
}

Trainer::Step Trainer::train_step() {
  const int64_t micro_steps = config_.train.accumulate, dropout_steps = config_.train.dropout_steps;
  const bool with_dropout = dropout_steps == 0 || step_ < dropout_steps;
  prepare_batches();
  bool repeatable = graphs_ != nullptr;
  std::string layout = with_dropout ? "" : "without dropout ";
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const std::string of_batch = task_->fetch(step_ * micro_steps + micro, micro);
    repeatable = repeatable && !of_batch.empty();
    layout += of_batch + ";";
  }
  const std::vector<double> shares = shares_of_batches();
  Step done;
  done.lr = config_.optimizer.lr * schedule_->factor(step_);
  optimizer_->prepare(done.lr);
  const auto launch = [&] { return launch_step(with_dropout); };
  const StepOutputs outputs = repeatable ? graphs_->run(layout, step_, launch) : launch();
  done.grad_norm = outputs.grad_norm;
  done.tokens = outputs.tokens;
  UnreadLosses losses{step_, shares, {}, Readback(outputs.grad_norm)};
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
  check_weights(task_->model().parameters());
  MetricRecord record{{"step", step_}, {"split", "train"}, {"loss_nats", *last_loss_}};
  task_->add_metrics(*last_loss_, record);
  const MetricRecord rest{{"lr", step.lr},
                          {"grad_norm", step.grad_norm.item()},
                          {"tokens_per_second", speed},
                          {"seconds", seconds_},
                          {"memory_bytes", allocator(device_).stats().peak}};
  record.insert(record.end(), rest.begin(), rest.end());
  write_metrics(record);
  interval_tokens_ = 0;
  interval_seconds_ = 0;
}

void Trainer::report_epoch() {
  if (!task_->reports_epochs() || !epoch_due(1)) return;
  seconds_per_epoch_ = epoch_seconds_;
  epoch_seconds_ = 0;
  write_metrics({{"step", step_},
                 {"split", "epoch"},
                 {"epoch", task_->epochs_done(step_ * config_.train.accumulate)},
                 {"seconds_per_epoch", seconds_per_epoch_},
                 {"cpu_seconds_per_epoch", epoch_cpu_seconds_}});
  epoch_cpu_seconds_ = 0;
}

// Prints a warning on its own line, also with --quiet.
void Trainer::warn(const std::string& text) {
  progress_->finish();
  log_warning(text);
}

// Writes a record. A full disk does not end the run: records wait in memory until there is room.
void Trainer::write_metrics(const MetricRecord& record) {
  const bool waited = metrics_->waiting() > 0;
  metrics_->write(record);
  if (!waited && metrics_->waiting() > 0)
    warn(metrics_->problem() + "; the records wait in memory until the file can be written");
}

// Returns false if a signal interrupted the evaluation.
bool Trainer::evaluate_now(const StopSignals& signals) {
  read_losses(step_);
  optimizer_->swap_average();
  std::optional<TaskEvaluation> evaluation;
  try {
    evaluation = task_->evaluate([&signals] { return signals.requested() != 0; });
  } catch (const Stopped&) {
  }
  optimizer_->swap_average();
  if (!evaluation) return false;
  evaluation_ = evaluation;
  evaluated_step_ = step_;
  const TaskEvaluation& e = *evaluation_;
  schedule_->observe(e.criterion);
  MetricRecord record{{"step", step_}, {"split", e.split}};
  record.insert(record.end(), e.metrics.begin(), e.metrics.end());
  write_metrics(record);
  progress_->message(concat_text("step ", step_, ": ", e.split, " ", e.text, " (", e.examples, " examples, ",
                                 duration_text(e.seconds), ")"));
  return true;
}

// The checkpoint's model holds the averaged weights where there are any, so that whoever loads it evaluates
// those; the weights that training continues from are saved exchanged with them, as the optimizer's
// "average.NAME". A disk that is full must not end a run that can go on: the old checkpoint is intact, and
// the next one may succeed.
void Trainer::save(bool must_succeed) {
  read_losses(step_);
  check_weights(task_->model().parameters());
  check_weights(optimizer_->state());
  const auto as_map = [](const NamedTensors& list) {
    return std::map<std::string, Tensor>(list.begin(), list.end());
  };
  const std::string run_dir = options_.run_dir.string();
  optimizer_->swap_average();
  std::exception_ptr failure;
  try {
    save_checkpoint(run_dir, {as_map(task_->model().parameters()), as_map(optimizer_->state()), state(),
                              to_toml(config_)});
    saved_step_ = step_;
  } catch (const CheckpointError& error) {
    failure = std::current_exception();
    if (!must_succeed) warn(error.what());
  }
  optimizer_->swap_average();
  if (failure && must_succeed) std::rethrow_exception(failure);
  if (failure) return;
  try {
    prune_checkpoints(run_dir, config_.train.keep_last);
  } catch (const CheckpointError& error) {
    warn(error.what());
  }
}

// Adds the evaluation to the checkpoint of its step, if that was saved. Otherwise a resumed run evaluates
// again.
void Trainer::record_evaluation(bool best) {
  if (saved_step_ != step_) return;
  const std::string run_dir = options_.run_dir.string();
  try {
    replace_checkpoint_state(run_dir, state());
    if (!best) return;
    mark_best_checkpoint(run_dir, step_);
    prune_checkpoints(run_dir, config_.train.keep_last);
  } catch (const CheckpointError& error) {
    warn(error.what());
  }
}

// Saves a checkpoint and evaluates, if they are due after this step. Saves first, so that a signal or a crash
// during the evaluation loses no step. Returns false if a signal interrupted the evaluation.
bool Trainer::finish_step(bool last, const StopSignals& signals) {
  const bool evaluates = (evaluation_due() || last) && evaluated_step_ != step_;
  const bool saves = evaluates || last || due(config_.train.checkpoint_every);
  if (saves && saved_step_ != step_) save(last);
  if (!evaluates) return true;
  if (!evaluate_now(signals)) return false;
  const bool best = evaluation_->criterion < best_loss_;
  if (best) best_loss_ = evaluation_->criterion;
  record_evaluation(best);
  return true;
}

TrainResult Trainer::run() {
  const RunDirectory directory(options_.run_dir);
  if (options_.resume)
    resume(directory);
  else
    start_new_run(directory);
  metrics_ = std::make_unique<MetricsWriter>(directory.folder());
  progress_ = std::make_unique<Progress>(std::cerr, progress_style(options_.quiet), step_, total_steps_,
                                         Progress::Clock(), task_->speed_unit());
  const StopSignals signals;
  TrainResult result;
  result.total_steps = total_steps_;
  const double limit = config_.train.time_limit_minutes * 60;
  const auto finish = [&](bool last) {
    if (!finish_step(last, signals)) result.stop_signal = signals.requested();
  };
  result.time_is_up = limit > 0 && seconds_ >= limit;
  // The earlier process may have ended before the evaluation of this step.
  const bool ended = step_ == total_steps_ || result.time_is_up;
  if (step_ > 0 && evaluated_step_ != step_ && (evaluation_due() || ended)) finish(ended);
  while (step_ < total_steps_ && !result.time_is_up && !result.stop_signal) {
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
    finish(step_ == total_steps_ || result.time_is_up);
  }
  if (result.stop_signal && saved_step_ != step_) save(true);
  metrics_->flush();
  if (metrics_->waiting() > 0)
    warn(concat_text(metrics_->problem(), "; ", metrics_->waiting(), " records are lost"));
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
