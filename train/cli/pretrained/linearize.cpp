// The command "tapeformer linearize": turns a trained softmax model into one with another attention, whose
// state has a constant size, by a short training.
#include <filesystem>

#include "core/options/name_patterns.h"
#include "core/stopwatch.h"
#include "core/system/log.h"
#include "models/decoder.h"
#include "train/build.h"
#include "train/checkpoint/run_directory.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/config/value.h"
#include "train/distributed/processes.h"
#include "train/loop/trainer.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Returns the model of an autoregressive task, and null for other tasks.
const AutoregressiveModel* find_model(const LoadedTask& loaded) {
  const auto* const task = dynamic_cast<const AutoregressiveTask*>(loaded.task.get());
  return task ? &task->model() : nullptr;
}

// Builds the configs of the two trainings, and knows their run directories.
class Plan {
 public:
  Plan(const LoadedTask& teacher, const CommandLine& line)
      : teacher_(teacher),
        line_(line),
        kind_(find_attention_kind(line.options.get<std::string>("attention"))) {
    if (!kind_.capabilities.recurrent)
      throw ConfigError("--attention " + kind_.name + ": the kind has no recurrent form");
    const auto& given = line.options.get<std::string>("run-dir");
    const fs::path run = find_run_folder(teacher.checkpoint_folder);
    const fs::path source = run.empty() ? teacher.checkpoint_folder : run;
    run_dir_ = given.empty() ? source.string() + "-" + kind_.name : given;
    check_run_dir();
    make_attention_list();
    new_parameters_ = list_new_parameters();
    unused_parameters_ = list_unused_parameters();
  }

  fs::path run_dir() const { return run_dir_; }
  fs::path transfer_dir() const { return run_dir_ / "transfer"; }
  // Whether the attention has parameters that it can learn from the layers of the teacher.
  bool transfers() const {
    return find_model(teacher_) && line_.options.get<int64_t>("transfer-steps") > 0 &&
           !new_parameters_.empty();
  }

  Config make_transfer_config() const {
    std::vector<std::string> frozen{"*"};
    if (learns_projections())
      frozen.emplace_back("!*.attention.*");
    else
      for (const std::string& name : new_parameters_) frozen.push_back("!" + name);
    const double given = line_.options.get<double>("transfer-lr");
    const double rate = given > 0 ? given : learns_projections() ? 1e-3 : 1e-2;
    return make_config(
        line_.options.get<int64_t>("transfer-steps"), rate,
        {"model.init=" + quote_toml_string(teacher_.checkpoint_folder.string()),
         "model.init_new=" + format_option_value(new_parameters_),
         "model.init_unused=" + format_option_value(unused_parameters_),
         "train.freeze=" + format_option_value(frozen), "optimizer.weight_decay=0",
         "distill.teacher=" + quote_toml_string(teacher_.checkpoint_folder.string()),
         std::string("distill.target=") + (learns_projections() ? "\"attention\"" : "\"heads\"")});
  }
  Config make_training_config() const {
    std::vector<std::string> settings{
        "model.init=" +
            quote_toml_string(transfers() ? transfer_dir().string() : teacher_.checkpoint_folder.string()),
        "train.freeze=[]"};
    settings.push_back("model.init_new=" + (transfers() ? "[]" : format_option_value(new_parameters_)));
    settings.push_back("model.init_unused=" + (transfers() ? "[]" : format_option_value(unused_parameters_)));
    if (teacher_.config().model.type == "sequence")
      settings.insert(settings.end(),
                      {"distill.teacher=" + quote_toml_string(teacher_.checkpoint_folder.string()),
                       "distill.target=\"logits\""});
    return make_config(line_.options.get<int64_t>("steps"), line_.options.get<double>("lr"), settings);
  }

 private:
  void check_run_dir() const {
    std::error_code ignored;
    const std::string start = "--run-dir " + run_dir_.string() + ": ";
    if (!fs::exists(run_dir_, ignored)) return;
    if (!fs::is_directory(run_dir_, ignored)) throw ConfigError(start + "is not a folder");
    if (fs::equivalent(run_dir_, find_run_folder(teacher_.checkpoint_folder), ignored))
      throw ConfigError(start + "is the run of the teacher");
    if (!fs::is_empty(run_dir_, ignored) && !fs::exists(transfer_dir(), ignored) &&
        !fs::exists(run_dir_ / kConfigFileName, ignored))
      throw ConfigError(start + "has other files; expected a new folder, or one of an earlier linearize");
  }

  void make_attention_list() {
    const Config& config = teacher_.config();
    const auto layers = config.model.get<int64_t>("layers");
    const AttentionPattern pattern = make_attention_pattern(config);
    const auto& text = line_.options.get<std::string>("keep");
    const std::vector<int64_t> kept = text.empty() ? std::vector<int64_t>() : parse_index_list("keep", text);
    for (const int64_t layer : kept)
      if (layer >= layers)
        throw ConfigError(concat_text("--keep ", layer, ": the model has ", layers, " layers, from 0 on"));
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool keeps = std::find(kept.begin(), kept.end(), layer) != kept.end();
      attention_.push_back(keeps ? find_layer_choice(pattern, layer).kind : kind_.name);
    }
    if (kept.empty()) attention_.resize(1);
  }

  // Kinds with gates compute another function of queries and keys than softmax, so their projections learn
  // too.
  bool learns_projections() const { return kind_.capabilities.reads_layer_input; }

  std::vector<std::string> list_new_parameters() const {
    const Config config = make_config(1, 1e-3, {});
    const AttentionLayerChoice choice = [&] {
      for (const AttentionLayerChoice& layer : make_attention_pattern(config))
        if (layer.kind == kind_.name) return layer;
      throw ConfigError("--keep: no layer is left");
    }();
    check_window(choice);
    std::vector<std::string> patterns;
    const auto attention = make_attention(
        choice.kind, choice.options,
        {.heads = config.model.get<int64_t>("heads"), .dim = config.model.get<int64_t>("head_dim")});
    if (!attention->saved_tensors().empty()) patterns.emplace_back("*.inner_attention.*");
    if (kind_.get_conv(choice.options).kernel > 0) patterns.emplace_back("*.attention.conv.*");
    return patterns;
  }

  // If a window contains all tokens, nothing is left for the new parameters.
  void check_window(const AttentionLayerChoice& choice) const {
    const AutoregressiveModel* const model = find_model(teacher_);
    if (!model || !has_option(kind_.options, "window")) return;
    const int64_t length = model->options().max_length;
    if (const auto window = choice.options.get<int64_t>("window"); window >= length)
      throw ConfigError(concat_text("attention.window = ", window,
                                    ": expected less than the length of the sequences, ", length,
                                    ", which the window would contain as a whole"));
  }

  // Returns a pattern of the biases of projections if the teacher has them and the kind has none.
  std::vector<std::string> list_unused_parameters() const {
    const std::string pattern = "*.attention.*_projection.bias";
    if (kind_.capabilities.has_projection_biases) return {};
    for (const auto& [name, tensor] : teacher_.task->model().saved_tensors())
      if (count_pattern_edits(pattern, name) == 0) return {pattern};
    return {};
  }

  Config make_config(int64_t steps, double rate, std::vector<std::string> settings) const {
    const ModelConfig& model = teacher_.config().model;
    for (const std::string name : {"dropout", "attention_dropout"})
      if (model.has(name) && model.get<double>(name) > 0) settings.push_back("model." + name + "=0");
    settings.insert(
        settings.end(),
        {"run.name=" + quote_toml_string(run_dir_.filename().string()),
         "model.attention=" + format_option_value(attention_), "train.epochs=0",
         concat_text("train.steps=", std::max<int64_t>(steps, 1)), concat_text("optimizer.lr=", rate),
         "optimizer.kind=\"adamw\"", "schedule.kind=\"cosine\"",
         concat_text("schedule.warmup_steps=", std::min<int64_t>(50, steps / 4)),
         "train.eval_every=0",  // only at the end: a split can take longer to evaluate than the training
         concat_text("train.checkpoint_every=", std::max<int64_t>(steps / 4, 1)), "train.eval_epochs=0",
         "train.time_limit_minutes=0"});
    const ConfigOverrides overrides = make_config_overrides(line_.common_options);
    for (const std::string& setting : overrides.config_settings) settings.push_back(add_kind(setting));
    Config config = load_config((teacher_.checkpoint_folder / "config.toml").string(), settings,
                                {.device = overrides.device});
    overrides.apply(config);
    return config;
  }

  // A model with several kinds has a table for each: writes "attention.NAME=…" as "attention.KIND.NAME=…".
  std::string add_kind(const std::string& setting) const {
    const std::string table = "attention.";
    const std::string key = setting.substr(0, setting.find('='));
    if (attention_.size() == 1 || !key.starts_with(table) || key.find('.', table.size()) != std::string::npos)
      return setting;
    return table + kind_.name + "." + setting.substr(table.size());
  }

  const LoadedTask& teacher_;
  const CommandLine& line_;
  const AttentionKind& kind_;
  fs::path run_dir_;
  std::vector<std::string> attention_;
  // Patterns of parameters that the attention of the teacher does not have, and that the kind does not have.
  std::vector<std::string> new_parameters_, unused_parameters_;
};

TrainResult train(const Config& config, const fs::path& run_dir, const CommandLine& line) {
  return Trainer(config, {.run_dir = run_dir,
                          .data_dir = line.common_options.data_dir,
                          .resume = true,
                          .quiet = line.common_options.quiet})
      .run();
}

// Returns the settings of --set that choose data and arithmetic, which the teacher takes, too: the run of an
// imported model names no text. Loaded models have no data.eval_limit.
std::vector<std::string> list_shared_settings(const CommandLine& line) {
  std::vector<std::string> shared;
  for (const std::string& setting : line.common_options.config_settings)
    if ((setting.starts_with("data.") && !setting.starts_with("data.eval_limit")) ||
        setting.starts_with("run."))
      shared.push_back(setting);
  return shared;
}

// Returns the results of an evaluation of at most `eval_limit` examples (0: all) and, for autoregressive
// models, the speed and the state of decoding one sequence.
Report describe_model(const LoadedTask& loaded, const std::string& name, double training_seconds,
                      int64_t eval_limit) {
  Report report;
  report.add("model", name).add("attention", join_kind_names(make_attention_pattern(loaded.config())));
  const TaskEvaluation evaluation =
      loaded.task->open_evaluation({.split = "test", .limit = eval_limit})->evaluate();
  add_fields(evaluation.results, report);
  report.add("training_seconds", training_seconds);
  const AutoregressiveModel* const model = find_model(loaded);
  if (!model || !describe_unsupported(model->options().encoder.attention, "recurrent form",
                                      &AttentionCapabilities::recurrent)
                     .empty())
    return report;
  const int64_t length = model->options().max_length;
  Decoder decoder(*model, 1);
  const Tensor token = Tensor::zeros({1}, DType::int64, model->predictor.weight.device());
  constexpr int64_t kTimed = 64;
  const int64_t timed = std::min(kTimed, length);
  if (length > timed) decoder.read(Tensor::zeros({1, length - timed}, DType::int64, token.device()));
  const Stopwatch watch(token.device());
  for (int64_t i = 0; i < timed; ++i) decoder.step(token);
  const double seconds = watch.measure_elapsed_seconds();
  return report.add("context", length)
      .add("tokens_per_second", static_cast<double>(timed) / seconds)
      .add("state_bytes", decoder.state_bytes());
}

}  // namespace

CommandSpec make_linearize_spec(const Arguments& /*words*/) {
  return {
      .summary =
          "Turns a trained model into one with another attention kind: copies the weights, trains the new "
          "attention layer by layer towards the results of the old one, then trains the whole model, and "
          "compares both. A second call continues an interrupted training.",
      .positionals = {make_run_argument()},
      .options = {make_checkpoint_option(),
                  {.name = "attention",
                   .default_value = std::string("window-linear"),
                   .help = "attention kind of the new model; --set attention.NAME=VALUE sets its options"},
                  {.name = "keep",
                   .default_value = std::string(),
                   .help = "layers that keep their attention, such as 0,5"},
                  {.name = "run-dir",
                   .default_value = std::string(),
                   .help = "run directory of the new model; the first training is in its folder transfer",
                   .default_text = "RUN-KIND"},
                  {.name = "transfer-steps",
                   .default_value = int64_t{500},
                   .help = "steps in which the attention layers learn from the layers of RUN; 0: none",
                   .min = 0},
                  {.name = "steps",
                   .default_value = int64_t{1000},
                   .help = "steps in which the whole model learns: the distributions of RUN or, for images, "
                           "from the data; 0: none",
                   .min = 0},
                  {.name = "transfer-lr",
                   .default_value = 0.0,
                   .help = "learning rate of the first training",
                   .min = 0,
                   .max = 1,
                   .default_text = "0.01; kinds with gates: 0.001"},
                  {.name = "lr",
                   .default_value = 2e-4,
                   .help = "learning rate of the second training",
                   .min = 0,
                   .max = 1}},
      .details =
          "--set changes keys of both trainings, such as data.batch_size, train.eval_every or "
          "attention.window, which is an option of the new kind. Dropout is off.",
      .uses_config = true};
}

int run_linearize(const CommandLine& line) {
  init_process_group_and_threads(line.common_options);
  const auto load = [&](const std::string& path, const std::string& checkpoint) {
    return load_task({.path = path,
                      .checkpoint_name = checkpoint,
                      .config_settings = list_shared_settings(line),
                      .device = select_device(line.common_options),
                      .data = make_data_access(line)});
  };
  const LoadedTask teacher = load(line.positionals[0], line.options.get<std::string>("checkpoint"));
  const Plan plan(teacher, line);
  double seconds = 0;
  fs::path student;
  for (const bool is_transfer : {true, false}) {
    if (is_transfer ? !plan.transfers() : line.options.get<int64_t>("steps") == 0) continue;
    log_info(is_transfer ? "first training: the attention layers imitate those of the teacher"
                         : "second training: the whole model");
    const TrainResult result = is_transfer ? train(plan.make_transfer_config(), plan.transfer_dir(), line)
                                           : train(plan.make_training_config(), plan.run_dir(), line);
    if (result.stop_signal) return kSignalStopExitStatus;
    seconds += result.training_seconds;
    student = is_transfer ? plan.transfer_dir() : plan.run_dir();
  }
  if (student.empty()) throw ConfigError("--steps 0: nothing is left to train");
  const LoadedTask trained = load(student.string(), "latest");
  const int64_t limit = trained.config().data.eval_limit;
  Report report;
  report
      .add("models", std::vector<Report>{describe_model(teacher, "teacher", 0, limit),
                                         describe_model(trained, "student", seconds, limit)})
      .add("run_dir", student.string());
  print_report(report, line.common_options);
  return 0;
}

}  // namespace tapeformer
