#include "train/loop/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/allocator.h"
#include "core/cuda/transfers.h"
#include "core/options/name_patterns.h"
#include "core/stopwatch.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "models/layers/low_rank.h"
#include "train/build.h"
#include "train/checkpoint/adapters.h"
#include "train/checkpoint/initial_weights.h"
#include "train/checkpoint/source_facts.h"
#include "train/distributed/gather.h"
#include "train/distributed/replicas.h"
#include "train/loop/divergence.h"
#include "train/loop/process_settings.h"
#include "train/loop/resume.h"
#include "train/tasks/registry/earlier_tokens.h"
#include "train/tasks/registry/load_task.h"

namespace tapeformer {
namespace {

constexpr int64_t kReplicaInterval = 100;  // steps between comparisons of the weights of the processes

int64_t count_total_steps(const Config& config, const Task& task) {
  const TrainConfig& t = config.train;
  if (t.steps > 0) return t.steps;
  const double steps = task.batches().count_batches(t.epochs) / static_cast<double>(t.accumulate);
  return std::max<int64_t>(std::llround(steps), 1);
}

// Freezes the tensors that train.freeze matches and, in a run with adapters, all tensors except the adapters.
void freeze_tensors(const Config& config, Module& model) {
  const NamePatterns patterns("train.freeze", config.train.freeze);
  const bool adapts = has_adapters(config);
  if (patterns.empty() && !adapts) return;
  if (adapts && config.model.init.empty())
    throw ConfigError("lora.rank: adapters extend the weights of model.init, which is empty");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.saved_tensors()) names.push_back(name);
  patterns.require_matches(names, "tensor of the model");
  model.freeze([&](const std::string& name) {
    return patterns.matches(name) || (adapts && !is_adapter_tensor(name));
  });
  const NamedTensors trained = model.parameters();
  if (trained.empty())
    throw ConfigError("train.freeze: expected at least one parameter to train, but all are frozen");
  int64_t count = 0;
  for (const auto& [name, tensor] : trained) count += tensor.numel();
  log_info(count, " of ", count_parameters(model), " parameters are trained, ", trained.size(), " tensors");
}

void wait_for(Device device) {
  if constexpr (kHasCuda)
    if (!device.is_cpu()) cuda::synchronize(device);
}

}  // namespace

Trainer::Trainer(Config config, TrainerOptions options)
    : config_(std::move(config)), options_(std::move(options)) {
  Communicator& hosts = *options_.processes.communicator;
  if (hosts.size() > 1) {
    SharedSettings settings = list_shared_settings(config_);
    settings.emplace_back("run directory", options_.run_dir.string());
    settings.emplace_back("resume", options_.resume ? "true" : "false");
    require_same_settings(hosts, settings);
  }
  require_utf8(config_, options_.run_dir.string());
  device_ = prepare_device(make_process_run_config(config_.run, options_.processes));
  log_processes(options_.processes);
  communicator_ = make_communicator(options_.processes, device_);
  const bool resumes = options_.resume && !list_checkpoint_steps(options_.run_dir.string()).empty();
  task_ = make_task_with_earlier_tokens(
      config_, {{options_.data_dir, options_.allow_commands}, device_, *communicator_},
      resumes ? options_.run_dir.string() : "");
  if (!config_.distill.teacher.empty() && explain_unused_key(config_, "distill.teacher").empty())
    load_teacher();
  evaluator_ = task_->open_evaluation({.is_during_training = true});
  training_data_digest_ = task_->batches().compute_digest();
  if (hosts.size() > 1)
    require_same_settings(
        hosts, {{"training data", training_data_digest_}, {"evaluation data", evaluator_->compute_digest()}});
  run_on_first_process(hosts, [&] {
    if (!config_.model.init.empty() && !resumes)
      load_initial_weights(
          config_, task_->model(),
          keeps_initial_tokens(config_) ? std::vector<std::string>() : task_->list_token_modules());
    if (has_adapters(config_) && !resumes) base_ = make_base_reference(config_, options_.run_dir);
    return true;
  });
  freeze_tensors(config_, task_->model());
  state_.total_steps = count_total_steps(config_, *task_);
  task_metadata_json_ = get_checked_metadata_json(*task_);
  optimizer_ =
      std::make_unique<Optimizer>(config_.optimizer, task_->model().parameters(),
                                  task_->model().undecayed_parameters(), task_->model().frozen_parameters());
  schedule_ = std::make_unique<Schedule>(config_.schedule, state_.total_steps);
  step_runner_ =
      std::make_unique<StepRunner>(config_, device_, state_, *task_, *optimizer_, *schedule_, *communicator_);
  checkpoint_writer_ = std::make_unique<CheckpointWriter>(options_.run_dir, config_, *task_, *optimizer_);
  get_device_allocator(kCpu).trim();  // memory of initial values, which steps do not need
}

Trainer::~Trainer() = default;

// The teacher reads sequences of the length of the new run.
void Trainer::load_teacher() {
  std::vector<std::string> settings;
  if (const char* key = "sequence_length"; config_.data.has(key))
    settings.push_back(concat_text("data.", key, "=", config_.data.get<int64_t>(key)));
  LoadedTask loaded = load_task({.path = config_.distill.teacher,
                                 .config_settings = settings,
                                 .device = device_,
                                 .purpose = ConfigPurpose::generation});
  teacher_ = Checkpoint(loaded.checkpoint_folder.string()).read_model_checksum();
  task_->set_teacher(std::move(loaded.task));
}

void Trainer::restore(const TrainingState& state) {
  state_.step = state_.last_checkpoint_step = state.step;
  state_.last_evaluation_step = state.last_evaluation_step;
  if (state.best_loss) state_.best_loss = *state.best_loss;
  base_ = state.base;
  state_.training_seconds = state.training_seconds;
  epoch_time_accumulator_.restore(state.epoch_times.value_or(TrainingState::EpochTimes{}));
  schedule_->state = state.schedule_state;
}

TrainingState Trainer::make_state() const {
  TrainingState state{.step = state_.step,
                      .last_evaluation_step = state_.last_evaluation_step,
                      .optimizer_step_count = optimizer_->step_count(),
                      .training_seconds = state_.training_seconds,
                      .schedule_state = schedule_->state,
                      .task_json = task_metadata_json_,
                      .training_data_digest = training_data_digest_};
  if (std::isfinite(state_.best_loss)) state.best_loss = state_.best_loss;
  state.base = base_;
  state.teacher = teacher_;
  if (task_->reports_epochs()) state.epoch_times = epoch_time_accumulator_.state();
  return state;
}

bool Trainer::is_epoch_due(int64_t every) const {
  if (every == 0 || state_.step == 0) return false;
  const int64_t batches = state_.step * config_.train.accumulate;
  const int64_t done = task_->batches().count_complete_epochs(batches);
  return done / every > task_->batches().count_complete_epochs(batches - config_.train.accumulate) / every;
}

CheckpointWriter::WarningFunction Trainer::make_warning_function() {
  return [this](const std::string& text) { run_log_->warn(text); };
}

void Trainer::report_step(const StepResult& step) {
  const bool last = state_.step == state_.total_steps, logged = is_due(config_.train.log_every) || last;
  if (logged || device_.is_cpu() || !step_runner_->last_loss()) step_runner_->wait_for_losses(state_.step);
  const double loss = *step_runner_->last_loss();
  interval_processed_unit_count_ += step_runner_->take_processed_unit_count();
  const double speed =
      interval_seconds_ > 0 ? static_cast<double>(interval_processed_unit_count_) / interval_seconds_ : 0;
  ProgressSample sample{
      .step = state_.step,
      .loss = loss,
      .bits_per_dim = task_->compute_progress_bits_per_dim(loss),
      .tokens_per_second = speed,
      .memory_bytes = get_device_allocator(device_).stats().peak_bytes,
      .epoch = task_->batches().count_complete_epochs(state_.step * config_.train.accumulate - 1) + 1,
      .lr = step.lr};
  if (time_limit_seconds() > 0)
    sample.seconds_left = std::max(time_limit_seconds() - state_.training_seconds, 0.0);
  run_log_->show_progress(sample);
  if (!logged) return;
  check_finite_weights(task_->model().parameters(), state_);
  MetricRecord record{{"step", state_.step}, {"split", "train"}, {"loss_nats", loss}};
  task_->add_metrics(loss, record);
  if (const auto terms = step_runner_->last_loss_terms()) record.emplace_back("auxiliary_loss", *terms);
  const MetricRecord rest{{"lr", step.lr},
                          {"grad_norm", step.grad_norm.item()},
                          {"tokens_per_second", speed},
                          {"seconds", state_.training_seconds},
                          {"memory_bytes", get_device_allocator(device_).stats().peak_bytes}};
  record.insert(record.end(), rest.begin(), rest.end());
  write_record(record);
  interval_processed_unit_count_ = 0;
  interval_seconds_ = 0;
}

void Trainer::write_record(const MetricRecord& record) {
  run_log_->write(record);
  if (options_.on_record && communicator_->is_first()) options_.on_record(record);
}

void Trainer::report_epoch() {
  if (!task_->reports_epochs() || !is_epoch_due(1)) return;
  const TrainingState::EpochTimes finished = epoch_time_accumulator_.finish_epoch();
  write_record({{"step", state_.step},
                {"split", "epoch"},
                {"epoch", task_->batches().count_complete_epochs(state_.step * config_.train.accumulate)},
                {"seconds_per_epoch", finished.seconds},
                {"cpu_seconds_per_epoch", finished.cpu_seconds}});
}

// Evaluates the moving average of the weights or, if there is no average, the weights. Returns false if a
// signal interrupted the evaluation.
bool Trainer::evaluate(const StopSignalScope& signals) {
  step_runner_->wait_for_losses(state_.step);
  optimizer_->swap_averaged_weights();
  std::optional<TaskEvaluation> evaluation;
  const Stopwatch watch(kCpu);
  bool has_message = false;
  const auto before_batch = [&] {
    if (!has_message && watch.measure_elapsed_seconds() >= options_.evaluation_message_delay_seconds) {
      run_log_->print_message(
          concat_text("step ", state_.step, ": evaluating ", evaluator_->count_examples(), " examples"));
      has_message = true;
    }
    return is_true_on_any_process(*communicator_, signals.last_signal() != 0);
  };
  try {
    evaluation = evaluator_->evaluate(before_batch);
  } catch (const StoppedError&) {
  }
  optimizer_->swap_averaged_weights();
  if (!evaluation) return false;
  last_evaluation_ = evaluation;
  state_.last_evaluation_step = state_.step;
  const TaskEvaluation& e = *last_evaluation_;
  schedule_->observe_loss(e.selection_metric);
  MetricRecord record{{"step", state_.step}, {"split", e.split}};
  record.insert(record.end(), e.metrics.begin(), e.metrics.end());
  record.insert(record.end(), {{"examples", e.example_count}, {"seconds", e.seconds}});
  write_record(record);
  run_log_->print_message(concat_text("step ", state_.step, ": ", e.split, " ", e.summary, " (",
                                      e.example_count, " examples, ", format_duration(e.seconds), ")"));
  return true;
}

// Saves a checkpoint. Throws DivergenceError if a loss, a weight or an optimizer state is not finite. If the
// checkpoint cannot be saved and `must_succeed` is true, throws an exception on all processes. If the
// checkpoint cannot be saved and `must_succeed` is false, logs a warning.
void Trainer::save_checkpoint(bool must_succeed) {
  step_runner_->wait_for_losses(state_.step);
  check_finite_weights(task_->model().parameters(), state_);
  check_finite_weights(optimizer_->state(), state_);
  const bool saved = run_on_first_process(*communicator_, [&] {
    return checkpoint_writer_->save(make_state(), must_succeed, make_warning_function());
  });
  if (saved) state_.last_checkpoint_step = state_.step;
}

bool Trainer::save_and_evaluate_if_due(bool is_last_step, const StopSignalScope& signals) {
  const bool evaluates = (is_evaluation_due() || is_last_step) && state_.last_evaluation_step != state_.step;
  const bool saves = evaluates || is_last_step || is_due(config_.train.checkpoint_every);
  if (saves) check_replicas();
  if (saves && state_.last_checkpoint_step != state_.step) save_checkpoint(is_last_step);
  if (!evaluates) return true;
  if (!evaluate(signals)) return false;
  const bool best = last_evaluation_->selection_metric < state_.best_loss;
  if (best) state_.best_loss = last_evaluation_->selection_metric;
  if (state_.last_checkpoint_step == state_.step && communicator_->is_first())
    checkpoint_writer_->record_evaluation(make_state(), best, make_warning_function());
  return true;
}

void Trainer::check_replicas() {
  require_equal_tensors(*communicator_, task_->model().saved_tensors(), state_.step);
}

StopRequest Trainer::make_stop_request(const StopSignalScope& signals) const {
  if (communicator_->size() > 1) return step_runner_->agreed_stop_request();
  return {signals.last_signal(), is_time_up()};
}

void Trainer::train_step(const StopSignalScope& signals) {
  const StepTimer timer;
  const StepResult step = step_runner_->run({signals.last_signal(), is_time_up()});
  ++state_.step;
  const double cpu_seconds = timer.cpu_seconds(), seconds = timer.seconds();
  epoch_time_accumulator_.add(seconds, cpu_seconds);
  state_.training_seconds += seconds;
  interval_seconds_ += seconds;
  report_step(step);
  report_epoch();
  if (is_due(kReplicaInterval)) check_replicas();
}

std::string Trainer::open_run(const RunDirectory& directory) {
  std::optional<TrainingState> saved;
  if (options_.resume)
    saved = resume_run(directory, config_, *task_, {task_metadata_json_, training_data_digest_, teacher_},
                       state_.total_steps, *optimizer_);
  else
    prepare_new_run(directory, config_);
  if (saved) restore(*saved);
  if (!saved && keeps_initial_tokens(config_))
    write_source_facts(directory.folder(), read_source_facts(find_initial_checkpoint(config_.model.init)));
  run_log_ = std::make_unique<RunLog>(&directory.folder(), options_.quiet, state_, task_->speed_unit());
  if (config_.run.tensorboard) run_log_->open_event_file(directory.folder(), state_, to_toml(config_));
  return saved ? to_json(*saved) : "";
}

void Trainer::open_run_on_all_processes(std::optional<RunDirectory>& directory) {
  std::string state;
  run_on_first_process(*communicator_, [&] {
    directory.emplace(options_.run_dir);
    state = open_run(*directory);
    return true;
  });
  if (communicator_->size() == 1) return;
  state = broadcast_text(*communicator_, state);
  broadcast_tensors(*communicator_, task_->model().saved_tensors());
  broadcast_tensors(*communicator_, optimizer_->state());
  if (directory) return;
  if (!state.empty()) {
    const TrainingState shared = parse_training_state(state, "state of process 0");
    optimizer_->set_step_count(shared.optimizer_step_count);
    restore(shared);
  }
  run_log_ = std::make_unique<RunLog>(nullptr, options_.quiet, state_, task_->speed_unit());
}

TrainResult Trainer::run() {
  std::optional<RunDirectory> directory;
  open_run_on_all_processes(directory);
  const StopSignalScope signals;
  TrainResult result;
  const auto finish = [&](bool last) {
    if (!save_and_evaluate_if_due(last, signals))
      result.stop_signal = all_reduce_max_signal(*communicator_, signals.last_signal());
  };
  result.is_time_up = is_time_up();
  // If the run was interrupted after a checkpoint was saved and before the model was evaluated, the model is
  // evaluated before the first step.
  const bool ended = state_.step == state_.total_steps || result.is_time_up;
  if (state_.step > 0 && state_.last_evaluation_step != state_.step && (is_evaluation_due() || ended))
    finish(ended);
  while (state_.step < state_.total_steps && !result.is_time_up && !result.stop_signal) {
    train_step(signals);
    const StopRequest request = make_stop_request(signals);
    result.stop_signal = request.signal;
    if (result.stop_signal) break;
    result.is_time_up = request.is_time_up;
    finish(state_.step == state_.total_steps || result.is_time_up);
  }
  if (result.stop_signal) check_replicas();
  if (result.stop_signal && state_.last_checkpoint_step != state_.step) save_checkpoint(true);
  run_log_->flush();
  run_log_->finish();
  result.step = state_.step;
  result.total_steps = state_.total_steps;
  result.evaluation = last_evaluation_;
  result.best_loss = state_.best_loss;
  result.training_seconds = state_.training_seconds;
  result.last_epoch_seconds = epoch_time_accumulator_.last_epoch_seconds();
  return result;
}

DryRunResult Trainer::dry_run() {
  // Number of steps before the measured step. With CUDA graphs, the second step is not measured, because the
  // second step captures the graph and takes longer than later steps.
  const int warm_up = graphs() ? 2 : 1;
  state_.total_steps = std::max<int64_t>(state_.total_steps, warm_up + 1);
  DryRunResult report{.parameter_count = count_parameters(task_->model()),
                      .total_steps = state_.total_steps,
                      .training_example_count = task_->batches().count_examples(),
                      .evaluation_example_count = evaluator_->count_examples()};
  get_device_allocator(device_).reset_peak();
  const auto step = [&] {
    step_runner_->run();
    ++state_.step;
  };
  for (int i = 0; i < warm_up; ++i) step();
  wait_for(device_);
  const StepTimer timer;
  step();
  wait_for(device_);
  report.seconds_per_step = timer.seconds();
  step_runner_->wait_for_losses(state_.step);
  report.loss = step_runner_->last_loss();
  report.memory_bytes = get_device_allocator(device_).stats().peak_bytes;
  report.estimated_seconds = report.seconds_per_step * static_cast<double>(report.total_steps);
  if (time_limit_seconds() > 0)
    report.estimated_seconds = std::min(report.estimated_seconds, time_limit_seconds());
  return report;
}

}  // namespace tapeformer
