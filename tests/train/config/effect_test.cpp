// Tests of the effect of config keys. A change of a key that the config uses must change the result of a
// short training run. A change of a key that the config does not use must not change the result.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/system/log.h"
#include "tests/train/quiet_training.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/config/schema.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Config keys that need not change the result of training, such as keys that control files, the device or the
// speed.
const std::set<std::string> kNeutral = {"run.name",
                                        "run.device",
                                        "run.threads",
                                        "run.precision",
                                        "run.tf32",
                                        "run.cuda_graphs",
                                        "run.tensorboard",
                                        "data.path",
                                        "data.valid_path",
                                        "data.test_path",
                                        "data.bad_utterances",
                                        "data.feature_cache",
                                        "data.image_cache",
                                        "data.max_frames",
                                        "model.init",
                                        "model.init_tokens",
                                        "lora.rank",        // needs model.init
                                        "distill.teacher",  // needs a run
                                        "model.recompute",
                                        "model.feedforward_chunks",
                                        "model.loss_chunks",
                                        "model.max_frames",
                                        "train.epochs",
                                        "train.eval_every",
                                        "train.eval_epochs",
                                        "train.checkpoint_every",
                                        "train.log_every",
                                        "train.keep_last",
                                        "train.eval_batch_size",
                                        "train.time_limit_minutes",
                                        "train.reduce_dtype"};

// Config keys that the test does not change, because these keys determine which other keys have an effect.
const std::set<std::string> kDeciding = {"data.dataset", "model.type", "model.encoder"};

// Returns the new values of config keys for which the general rules of other_value() would produce an invalid
// value or a value without effect.
const std::map<std::string, OptionValue>& special_values() {
  static const std::map<std::string, OptionValue> values = {
      {"data.limit", int64_t{6}},
      {"data.sample_rate", int64_t{8000}},
      {"data.downscale", int64_t{2}},
      {"data.tokenizer", std::string("characters")},
      {"data.max_length", int64_t{20}},
      {"model.subsampling", int64_t{2}},
      {"model.width", int64_t{24}},
      {"model.axial_shape", std::vector<int64_t>{4, 4}},
      {"model.axial_dims", std::vector<int64_t>{8, 8}},
      {"optimizer.betas", std::vector<double>{0.5, 0.99}},
      {"optimizer.adamw", std::vector<std::string>{"*"}},
      {"optimizer.eps", 0.1},
      {"optimizer.clip_norm", 1e-3},
      {"optimizer.clip_value", 1e-4},
      {"schedule.step_at", std::vector<int64_t>{1}},
      {"schedule.warmup_steps", int64_t{3}},
      {"train.dropout_steps", int64_t{1}},
      {"train.freeze", std::vector<std::string>{"*bias*"}}};
  return values;
}

OptionValue other_value(const SchemaKey& key, const Config& config) {
  if (const auto found = special_values().find(key.name()); found != special_values().end())
    return found->second;
  OptionValue value = key.get(config);
  if (key.name() == "model.attention")
    return std::vector<std::string>{config.model.attention.front() == "linear" ? "softmax" : "linear"};
  if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
  if (auto* integer = std::get_if<int64_t>(&value)) *integer += 1;
  if (auto* number = std::get_if<double>(&value)) *number = *number > 0 ? *number / 2 : 0.25;
  if (auto* text = std::get_if<std::string>(&value)) {
    const auto& choices = key.spec.choices;
    if (key.name() == "schedule.kind") return std::string(*text == "cosine" ? "constant" : "cosine");
    if (key.name() == "model.positions")
      return std::string(config.model.type == "speech" ? "rotary" : "axial");
    *text = choices.empty() ? "other" : *text == choices.front() ? choices.back() : choices.front();
  }
  return value;
}

// Trains a model with the config. Returns the results of the last evaluation, followed by the weights.
std::vector<double> outcome(const Config& config) {
  const TempDir dir;
  Trainer trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true});
  const TrainResult result = trainer.run();
  std::vector<double> numbers = {result.evaluation->selection_metric,
                                 get_metric_number(result.evaluation->metrics, "loss_nats", 0),
                                 static_cast<double>(result.evaluation->example_count)};
  for (const auto& [name, parameter] : trainer.model().parameters())
    for (const double weight : parameter.to_vector()) numbers.push_back(weight);
  return numbers;
}

AttentionTables default_tables(const std::string& kind) {
  return {{kind, find_attention_kind(kind).default_options()}};
}

// Sets other keys that the new value of the key `name` requires.
void complete(const std::string& name, Config& config) {
  if (name == "model.attention") config.attention = default_tables(config.model.attention.front());
  if (name == "model.reversible" || name == "model.parallel_residual")
    config.model.options.set("norm", "pre");
  if (name == "model.norm_offset") config.model.options.set("norm_kind", "rms");
  if (name == "model.tied_embeddings") config.model.options.set("positions", "none");
  if (name == "data.streams") config.data.options.set("eval_context", 0);
  if (name == "schedule.kind") config.schedule.options = {};
  if (name == "optimizer.clip_value") config.optimizer.clip_norm = 0;
  if (name != "model.positions" || config.model.type == "speech") return;
  config.model.options.set("axial_shape", std::vector<int64_t>{4, 4});
  config.model.options.set("axial_dims", std::vector<int64_t>{8, 8});
}

// Returns whether the key is an option of another data set, model type, optimizer or schedule than those of
// the config.
bool is_foreign(const SchemaKey& key, const Config& config) {
  const auto lacks = [&](const auto& kind, const OptionValues& options) {
    const auto& specs = kind.options;
    return options.values_by_name().contains(key.spec.name) &&
           std::none_of(specs.begin(), specs.end(),
                        [&](const OptionSpec& spec) { return spec.name == key.spec.name; });
  };
  Config changed = config;
  key.set(changed, other_value(key, config));
  return lacks(find_model_kind(config.model.type), changed.model.options) ||
         lacks(find_dataset_kind(config.data.dataset), changed.data.options) ||
         lacks(find_optimizer_kind(config.optimizer.kind), changed.optimizer.options) ||
         lacks(find_schedule_kind(config.schedule.kind), changed.schedule.options);
}

void check_scopes(const Config& config) {
  const std::vector<double> before = outcome(config);
  CHECK(outcome(config) == before);
  for (const SchemaKey& key : make_config_schema()) {
    if (kDeciding.contains(key.name())) continue;
    Config changed = config;
    key.set(changed, other_value(key, config));
    INFO(key.name() << " = " << format_config_value(changed, key.name()));
    if (is_foreign(key, config)) {
      CHECK(key.find_unmet_condition(config));
      CHECK_THROWS_AS(outcome(changed), std::invalid_argument);
    } else if (key.find_unmet_condition(config)) {
      CHECK(outcome(changed) == before);
    } else if (!kNeutral.contains(key.name())) {
      complete(key.name(), changed);
      CHECK(outcome(changed) != before);
    }
  }
}

Config copy_config() {
  Config config;
  config.run = {.name = "tiny", .device = "cpu", .threads = 1};
  config.data = {.dataset = "copy", .batch_size = 4, .eval_limit = 8, .options = {{"max_length", 16}}};
  config.model.type = "sequence";
  config.model.attention = {"softmax"};
  config.attention = default_tables("softmax");
  config.model.options.set("layers", 1);
  config.model.options.set("heads", 2);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 16);
  config.model.options.set("attention_dropout", 0.1);
  config.optimizer = {.kind = "adam", .lr = 1e-2, .weight_decay = 0.1, .clip_norm = 0.1, .ema = 0.5};
  config.schedule.kind = "step";
  config.schedule.options.set("step_at", std::vector<int64_t>{2});
  config.train.steps = 4;
  config.train.eval_every = 1;
  return config;
}

class QuietLog {
 public:
  QuietLog() { set_log_level(LogLevel::error); }
  ~QuietLog() { set_log_level(LogLevel::info); }
};

}  // namespace

TEST_CASE("the config keys that a training on sequences uses change its result, and other keys do not") {
  Config config = copy_config();
  check_scopes(config);
  config.model.attention = {"linear"};
  config.attention = default_tables("linear");
  config.optimizer.kind = "sgd";
  config.schedule = {.kind = "cosine"};
  check_scopes(config);
  for (const char* kind : {"adafactor", "muon"}) {
    config.optimizer.kind = kind;
    check_scopes(config);
  }
}

TEST_CASE("the config keys that a training on text uses change its result, and other keys do not") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 7);
  write_file(dir / "text", text);
  Config config = copy_config();
  config.data = {.dataset = "text", .batch_size = 4, .eval_limit = 3};
  config.data.options.set("path", (dir / "text").string());
  config.data.options.set("sequence_length", 12);
  config.data.options.set("valid_share", 0.3);
  config.data.options.set("eval_context", 4);
  check_scopes(config);
}

TEST_CASE("the config keys that a training on speech uses change its result, and other keys do not") {
  const QuietLog quiet;
  const TempDir dir;
  write_tiny_an4(dir / "an4", 9, 6);
  Config config = make_tiny_speech_config(dir / "an4", "transformer");
  config.data.batch_size = 3;
  config.data.eval_limit = 4;
  config.train.epochs = 0;
  config.train.steps = 4;
  config.data.options.set("spec_augment", true);
  config.data.options.set("time_width", 4);
  config.data.options.set("time_share", 0.5);
  config.schedule.warmup_steps = 1;
  check_scopes(config);
  config.model.options.set("encoder", "lstm");
  config.data.options.set("spec_augment", false);
  config.model.options.set("layers", 2);
  check_scopes(config);
}
