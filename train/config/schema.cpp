#include "train/config/schema.h"

#include <algorithm>

#include "core/threads/default_threads.h"
#include "train/config/part_keys.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

// The maximum value of keys such as model.layers. The product of three such values fits in int64_t.
constexpr double kMaxSize = 1 << 20;

// A builder that appends the keys of one table to a list. The members of the struct `Section` determine the
// types and the defaults of the keys. A key has an effect in every config unless its scope is set afterwards.
template <class Section>
class TableSchemaBuilder {
 public:
  // `use` is the use of keys that OptionSpec::use_for() does not change.
  TableSchemaBuilder(std::vector<SchemaKey>& keys, std::string table_name, Section Config::*section,
                     OptionUse use = OptionUse::training)
      : keys_(keys), table_name_(std::move(table_name)), section_(section), use_(use) {}

  // Adds a key. The result is valid until the next call.
  template <class T>
  OptionSpec& add(const char* name, T Section::*member, const std::string& help) {
    SchemaKey key;
    key.table_name = table_name_;
    key.get = [section = section_, member](const Config& config) -> OptionValue {
      return config.*section.*member;
    };
    key.set = [section = section_, member](Config& config, const OptionValue& value) {
      config.*section.*member = std::get<T>(value);
    };
    const OptionValue value = key.get(Config());
    key.get_default = [value](const Config&) { return value; };
    key.reset = [value, set = key.set](Config& config) { set(config, value); };
    key.spec = {.name = name, .default_value = value, .help = help, .use = use_};
    keys_.push_back(std::move(key));
    return keys_.back().spec;
  }

 private:
  std::vector<SchemaKey>& keys_;
  std::string table_name_;
  Section Config::*section_;
  OptionUse use_;
};

bool is_lstm(const Config& config) {
  return config.model.has("encoder") && config.model.get<std::string>("encoder") == "lstm";
}

// The condition under which model.dropout has an effect. An LSTM with one layer has no dropout, because there
// is no dropout after the last layer.
KeyCondition make_layer_dropout_condition() {
  return {"Transformers and LSTMs of several layers", "model.layers",
          [](const Config& c) { return !is_lstm(c) || c.model.get<int64_t>("layers") > 1; }};
}

std::string explain_missing_dropout(const Config& config) {
  for (const std::string& kind : config.model.attention)
    if (const std::string reason = find_attention_kind(kind).capabilities.weight_dropout.reason();
        !reason.empty())
      return quote_toml_string(kind) + " has no dropout of attention weights: " + reason;
  return "";
}

bool is_positive(const ModelConfig& model, const std::string& option) {
  return model.has(option) && model.get<double>(option) > 0;
}

std::string find_device_error(const OptionValue& value) {
  const auto& device = std::get<std::string>(value);
  if (device == "auto" || device == "cpu" || device == "cuda" || device == "cuda-emulated") return "";
  const std::string index = device.starts_with("cuda:") ? device.substr(5) : "";
  const bool digits =
      !index.empty() && index.size() <= 3 && index.find_first_not_of("0123456789") == std::string::npos;
  return digits ? "" : "expected \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got " + quote_toml_string(device);
}

// Returns an error message if the name of a run cannot be the name of a folder. Returns "" if the name is
// valid.
std::string find_name_error(const OptionValue& value) {
  const auto& name = std::get<std::string>(value);
  const bool bad = name == "." || name == ".." || name.size() > 200 ||
                   std::any_of(name.begin(), name.end(), [](unsigned char c) { return c == '/' || c < 32; });
  return bad ? "expected a name that can be a folder, got " + quote_toml_string(name) : "";
}

void add_run(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "run", &Config::run, OptionUse::process);
  table.add("name", &RunConfig::name, "name of the run and of its folder; empty: the name of the config file")
      .allow_change_on_resume();
  keys.back().find_error = find_name_error;
  table.add("seed", &RunConfig::seed, "seed of all random numbers").require_at_least(0);
  table.add("device", &RunConfig::device, "auto, cpu, cuda or cuda:N").allow_change_on_resume();
  keys.back().find_error = find_device_error;
  table
      .add("precision", &RunConfig::precision,
           "arithmetic of the model; bfloat16 rounds the operands of products and the activations between "
           "layers; weights, sums and the residual stream stay float32")
      .require_one_of({"float32", "bfloat16"})
      .use_for(OptionUse::model);
  table.add("tf32", &RunConfig::tf32, "float32 products on a CUDA device may round their operands to TF32")
      .use_for(OptionUse::model);
  const KeyCondition cuda{"CUDA devices", "run.device",
                          [](const Config& c) { return c.run.device != "cpu"; }};
  keys.back().scope = {cuda, {"the precision \"float32\"", "run.precision", [](const Config& c) {
                                return c.run.precision == "float32";
                              }}};
  table.add("cuda_graphs", &RunConfig::cuda_graphs, "capture steps as CUDA graphs and replay them")
      .allow_change_on_resume()
      .use_for(OptionUse::model);
  keys.back().scope = {cuda, {"models whose steps can be captured", "model.type", [](const Config& c) {
                                return !is_listed({"classification", "set", "speech"}, c.model.type);
                              }}};
  table.add("threads", &RunConfig::threads, "CPU threads; 0: $OMP_NUM_THREADS or all cores")
      .require_range(0, kMaxThreadCount)
      .allow_change_on_resume();
  table
      .add("tensorboard", &RunConfig::tensorboard,
           "also write TensorBoard event files with scalars, samples and the config")
      .allow_change_on_resume()
      .use_for(OptionUse::training);
}

// Returns the table of a part whose kind is the member `kind` of a section, and whose options are the member
// `options`.
template <class Section>
PartTable make_part_table(std::string name, std::string selector, std::string noun, Section Config::*section,
                          std::string Section::*kind, std::vector<PartKind> kinds) {
  return {.table_name = std::move(name),
          .selector = std::move(selector),
          .noun = std::move(noun),
          .get_kind = [=](const Config& c) -> const std::string& { return c.*section.*kind; },
          .get_options = [section](const Config& c) -> const OptionValues& { return (c.*section).options; },
          .get_mutable_options = [section](Config& c) -> OptionValues& { return (c.*section).options; },
          .kinds = std::move(kinds)};
}

bool has_tokens(const Config& config) {
  const DatasetType type = find_dataset_kind(config.data.dataset).type;
  return type == DatasetType::text || type == DatasetType::translation || type == DatasetType::sequences ||
         type == DatasetType::speech;
}

void add_model(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("model", "type", "model type", &Config::model, &ModelConfig::type,
                                         list_parts(list_model_kinds()));
  std::string help;
  for (const PartKind& kind : part.kinds) help += (help.empty() ? "" : "; ") + kind.name + ": " + kind.help;
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.add("type", &ModelConfig::type, help)
      .require_one_of(list_part_names(part.kinds))
      .use_for(OptionUse::model);
  OptionSpec& attention =
      table.add("attention", &ModelConfig::attention,
                "attention kind, with options in [attention], or a list of kinds that repeats over the "
                "layers, with options in [attention.KIND]");
  attention.use = OptionUse::model;
  for (const AttentionKind& kind : list_attention_kinds()) attention.choices.push_back(kind.name);
  attention.allow_scalar = true;
  keys.back().scope = {
      {"model types with heads", "model.type", [](const Config& c) { return c.model.has("heads"); }},
      {"Transformers", "model.encoder", [](const Config& c) { return !is_lstm(c); }}};
  add_part_keys(part, keys);
  // Whether dropout has an effect depends on more than one option.
  for (SchemaKey& key : keys) {
    if (key.name() == "model.dropout") key.scope.push_back(make_layer_dropout_condition());
    if (key.name() == "model.attention_dropout")
      key.scope.push_back(
          {"models whose attention kinds all have dropout of attention weights", "model.attention",
           [](const Config& c) { return explain_missing_dropout(c).empty(); }, explain_missing_dropout});
  }
  table
      .add("init", &ModelConfig::init,
           "run directory or checkpoint whose weights a new run starts from; empty: random weights")
      .mark_as_path();
  const KeyCondition starts_from_run{"runs that start from model.init", "model.init",
                                     [](const Config& c) { return !c.model.init.empty(); }};
  table.add(
      "init_new", &ModelConfig::init_new,
      "patterns of tensors that are not copied from model.init: they start with random values; * stands "
      "for any characters");
  keys.back().scope = {starts_from_run};
  table.add("init_unused", &ModelConfig::init_unused,
            "patterns of tensors of model.init that the model does not have");
  keys.back().scope = {starts_from_run};
  table
      .add("init_tokens", &ModelConfig::init_tokens,
           "keep: use the tokenizer or the phones of model.init; new: make them from the data, with new "
           "embeddings and outputs")
      .require_one_of({"keep", "new"});
  keys.back().scope = {starts_from_run,
                       {"data sets of texts, sentences, symbols or speech", "data.dataset", has_tokens}};
}

void add_data(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("data", "dataset", "data set", &Config::data, &DataConfig::dataset,
                                         list_parts(list_dataset_kinds()));
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.add("dataset", &DataConfig::dataset, "data set")
      .require_one_of(list_part_names(part.kinds))
      .use_for(OptionUse::model);
  table.add("batch_size", &DataConfig::batch_size, "sequences per batch, summed over all processes")
      .require_range(1, kMaxSize)
      .use_for(OptionUse::data);
  keys.back().scope = {{"batches of a number of sequences", "data.batch_tokens", [](const Config& c) {
                          return !c.data.has("batch_tokens") || c.data.get<int64_t>("batch_tokens") == 0;
                        }}};
  table.add("shuffle", &DataConfig::shuffle, "use a new random order in each epoch");
  keys.back().scope = {{"batches of independent examples", "data.streams", [](const Config& c) {
                          return !c.data.has("streams") || !c.data.get<bool>("streams");
                        }}};
  table.add("limit", &DataConfig::limit, "training examples to use; 0: all")
      .require_at_least(0)
      .use_for(OptionUse::data);
  table.add("eval_limit", &DataConfig::eval_limit, "evaluation examples to use; 0: all")
      .require_at_least(0)
      .allow_change_on_resume();
  add_part_keys(part, keys);
}

void add_optimizer(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("optimizer", "kind", "optimizer", &Config::optimizer,
                                         &OptimizerConfig::kind, list_parts(list_optimizer_kinds()));
  TableSchemaBuilder table(keys, "optimizer", &Config::optimizer);
  table.add("kind", &OptimizerConfig::kind, "optimizer").require_one_of(list_part_names(part.kinds));
  table.add("lr", &OptimizerConfig::lr, "learning rate").require_at_least(0);
  table
      .add("weight_decay", &OptimizerConfig::weight_decay,
           "decoupled decay of parameters (radam, adamw, adafactor); added to the gradient (adam, sgd)")
      .require_at_least(0);
  table.add("clip_norm", &OptimizerConfig::clip_norm, "largest gradient norm; 0: no clipping")
      .require_at_least(0);
  table.add("clip", &OptimizerConfig::clip, "norm to clip: of all gradients together, or of each tensor")
      .require_one_of({"global", "per_tensor"});
  keys.back().scope = {{"optimizer.clip_norm above 0", "optimizer.clip_norm",
                        [](const Config& c) { return c.optimizer.clip_norm > 0; }}};
  table.add("ema", &OptimizerConfig::ema, "decay of the moving average of the weights; 0: none")
      .require_fraction_below_one();
  add_part_keys(part, keys);
}

void add_schedule(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("schedule", "kind", "schedule", &Config::schedule,
                                         &ScheduleConfig::kind, list_parts(list_schedule_kinds()));
  TableSchemaBuilder table(keys, "schedule", &Config::schedule);
  table.add("kind", &ScheduleConfig::kind, "learning-rate schedule")
      .require_one_of(list_part_names(part.kinds));
  table
      .add("warmup_steps", &ScheduleConfig::warmup_steps,
           "number of first steps, in which the rate rises linearly to lr")
      .require_at_least(0);
  add_part_keys(part, keys);
}

void add_train(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "train", &Config::train);
  table.add("steps", &TrainConfig::steps, "length in optimizer steps; excludes epochs")
      .require_at_least(0)
      .allow_change_on_resume();
  keys.back().excluded_key = "train.epochs";
  table.add("epochs", &TrainConfig::epochs, "length in passes over the training data; excludes steps")
      .require_range(0, 1e9)
      .allow_change_on_resume();
  keys.back().excluded_key = "train.steps";
  table.add("accumulate", &TrainConfig::accumulate, "batches per optimizer step").require_range(1, kMaxSize);
  table.add("eval_every", &TrainConfig::eval_every, "steps between evaluations; 0: only at the end")
      .require_at_least(0)
      .allow_change_on_resume();
  table
      .add("eval_epochs", &TrainConfig::eval_epochs,
           "epochs between evaluations, in addition to eval_every; 0: none")
      .require_at_least(0)
      .allow_change_on_resume();
  table
      .add("checkpoint_every", &TrainConfig::checkpoint_every,
           "steps between checkpoints; 0: only at the end")
      .require_at_least(0)
      .allow_change_on_resume();
  table.add("log_every", &TrainConfig::log_every, "steps between records of metrics.jsonl")
      .require_at_least(1)
      .allow_change_on_resume();
  table.add("keep_last", &TrainConfig::keep_last, "checkpoints to keep in addition to the best checkpoint")
      .require_at_least(1)
      .allow_change_on_resume();
  table
      .add("time_limit_minutes", &TrainConfig::time_limit_minutes,
           "minutes of wall-clock time without evaluations, after which the run stops with a checkpoint; "
           "0: no limit")
      .require_at_least(0)
      .allow_change_on_resume();
  table.add("eval_batch_size", &TrainConfig::eval_batch_size, "batch size of evaluations; 0: data.batch_size")
      .require_range(0, kMaxSize)
      .allow_change_on_resume()
      .use_for(OptionUse::data);
  table
      .add("reduce_dtype", &TrainConfig::reduce_dtype,
           "dtype in which several processes sum their gradients; bfloat16 halves the traffic")
      .require_one_of({"float32", "bfloat16"})
      .allow_change_on_resume();
  table.add(
      "freeze", &TrainConfig::freeze,
      "patterns of tensors that training does not change, with names as in the checkpoint; * stands for any "
      "characters");
  table.add("dropout_steps", &TrainConfig::dropout_steps, "number of steps with dropout; 0: all steps")
      .require_at_least(0);
  keys.back().scope = {
      {"model types with dropout", "model.type", [](const Config& c) { return c.model.has("dropout"); }},
      make_layer_dropout_condition(),
      {"training with dropout", "model.dropout", [](const Config& c) {
         return is_positive(c.model, "dropout") || is_positive(c.model, "attention_dropout");
       }}};
}

void add_lora(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "lora", &Config::lora);
  table
      .add("rank", &LoraConfig::rank,
           "rank of the adapters of linear layers, which train instead of the weights of model.init; 0: none")
      .require_range(0, kMaxSize);
  keys.back().scope = {
      {"model types with heads", "model.type", [](const Config& c) { return c.model.has("heads"); }},
      {"Transformers", "model.encoder", [](const Config& c) { return !is_lstm(c); }}};
  const KeyCondition has_adapters{"trainings of adapters", "lora.rank",
                                  [](const Config& c) { return c.lora.rank > 0; }};
  table.add("alpha", &LoraConfig::alpha, "the product of an adapter is multiplied by alpha / rank")
      .require_at_least(0);
  keys.back().scope = {has_adapters};
  table.add(
      "targets", &LoraConfig::targets,
      "patterns of linear layers with adapters, such as \"layers.*.linear1\"; * stands for any characters");
  keys.back().scope = {has_adapters};
  table.add("dropout", &LoraConfig::dropout, "dropout of the inputs of the adapters")
      .require_fraction_below_one();
  keys.back().scope = {has_adapters};
}

void add_distill(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "distill", &Config::distill);
  table
      .add("teacher", &DistillConfig::teacher,
           "run directory or checkpoint of a model of the same data, which the training imitates; empty: the "
           "training learns from the data")
      .mark_as_path();
  keys.back().scope = {{"autoregressive models", "model.type", [](const Config& c) {
                          return c.model.type == "image" || c.model.type == "sequence";
                        }}};
  table
      .add("target", &DistillConfig::target,
           "what the training imitates: the results of the attention heads, the results of the attention "
           "layers (both layer by layer, with the inputs that the layers of the teacher read), or the "
           "distributions of the next tokens")
      .require_one_of({"heads", "attention", "logits"});
  keys.back().scope = {{"trainings with a teacher", "distill.teacher",
                        [](const Config& c) { return !c.distill.teacher.empty(); }}};
}

}  // namespace

std::vector<std::string> list_config_tables() {
  return {"run", "data", "model", "attention", "optimizer", "schedule", "train", "lora", "distill"};
}

std::vector<SchemaKey> make_config_schema() {
  std::vector<SchemaKey> keys;
  add_run(keys);
  add_data(keys);
  add_model(keys);
  add_optimizer(keys);
  add_schedule(keys);
  add_train(keys);
  add_lora(keys);
  add_distill(keys);
  return keys;
}

bool is_removed_key(const std::string& name) {
  return name == "data.allow_commands" || name == "run.time_products";
}

std::string describe_unmet_condition(const KeyCondition& condition, const Config& config) {
  return "belongs to " + condition.config_description + ", and " + condition.key + " is " +
         format_config_value(config, condition.key) +
         (condition.explain ? " (" + condition.explain(config) + ")" : "");
}

bool uses_attention(const Config& config) {
  return config.model.has("heads") && !is_lstm(config);
}

}  // namespace tapeformer
