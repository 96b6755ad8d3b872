// The configuration of a run, which is read from a TOML file, the files that this file extends, and --set
// options. The schema has each key once: general keys, and the options of registered data sets, model types,
// optimizers and schedules. Validation, help and to_toml() use the schema. Only the config code reads TOML.
//
// Functions throw ConfigError, which lists the problems of all files and --set options, one per line, in the
// form "file:line:column: message" or "--set table.key: message".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/options/options.h"
#include "data/dataset_kind.h"
#include "models/model_kind.h"
#include "train/optimization/optimizer_kind.h"
#include "train/optimization/schedule.h"

namespace tapeformer {

struct RunConfig {
  std::string name;  // name of the run; default: the stem of the config file
  int64_t seed = 1;
  std::string device = "auto";        // auto | cpu | cuda | cuda:N
  std::string precision = "float32";  // precision of matrix products: float32 | bfloat16
  bool tf32 = false;                  // rounds operands of float32 products to TF32 (CUDA only)
  bool cuda_graphs = true;            // runs steps of training and decoding as CUDA graphs (CUDA only)
  int64_t threads = 0;                // number of CPU threads; 0: all cores
  bool tensorboard = false;           // also writes TensorBoard event files
};

struct DataConfig {
  std::string dataset = "mnist";
  int64_t batch_size = 10;  // of speech: maximum number of utterances
  bool shuffle = true;
  int64_t limit = 0;          // maximum number of training examples; 0: all; of texts: windows
  int64_t eval_limit = 0;     // maximum number of examples in an evaluation; 0: all
  OptionValues options = {};  // options of the data set that differ from their defaults

  // Returns the value of an option of the data set. Throws std::invalid_argument if the data set has no such
  // option, or if T is not its type.
  template <class T>
  T get(const std::string& option) const {
    return get_value<T>(find_dataset_kind(dataset).options, options, option);
  }
  bool has(const std::string& option) const { return has_option(find_dataset_kind(dataset).options, option); }
  // Returns the values of all options of the data set.
  OptionValues all_options() const { return complete_options(find_dataset_kind(dataset).options, options); }
};

struct ModelConfig {
  std::string type = "image";
  // The names of attention kinds. The list repeats over the layers.
  std::vector<std::string> attention = {"linear"};
  // A run or checkpoint whose weights are the initial weights of a new run; empty: random weights.
  std::string init = {};
  // Patterns (core/options/name_patterns.h) of tensors of the model that start with random values, and of
  // tensors of the checkpoint that the model does not get.
  std::vector<std::string> init_new = {}, init_unused = {};
  // Tokens of a run with `init`: keep | new; see train/tasks/registry/earlier_tokens.h.
  std::string init_tokens = "keep";
  OptionValues options = {};  // options of the model type that differ from their defaults

  // As the functions of DataConfig, for the options of the model type.
  template <class T>
  T get(const std::string& option) const {
    return get_value<T>(find_model_kind(type).options, options, option);
  }
  bool has(const std::string& option) const { return has_option(find_model_kind(type).options, option); }
  OptionValues all_options() const { return complete_options(find_model_kind(type).options, options); }
};

// The table [train]. Exactly one of `steps` and `epochs` is positive.
struct TrainConfig {
  int64_t steps = 0;
  double epochs = 0;
  int64_t accumulate = 1;
  int64_t eval_every = 0;        // steps between evaluations; 0: none, except at the end
  int64_t eval_epochs = 0;       // epochs between evaluations, in addition to eval_every; 0: none
  int64_t checkpoint_every = 0;  // steps between checkpoints; 0: only at the end
  int64_t log_every = 10;
  int64_t keep_last = 3;
  double time_limit_minutes = 0;         // maximum training time; 0: no limit
  int64_t eval_batch_size = 0;           // batch size of evaluations; 0: data.batch_size
  int64_t dropout_steps = 0;             // number of steps with dropout; 0: all steps
  std::string reduce_dtype = "float32";  // dtype in which processes sum gradients: float32 | bfloat16
  std::vector<std::string> freeze = {};  // patterns of tensors that training does not change
};

// Low-rank adapters (models/layers/low_rank.h). A run with adapters trains only them.
struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 16;
  // Patterns (core/options/name_patterns.h) of linear layers.
  std::vector<std::string> targets = {"*.query_projection", "*.value_projection"};
  double dropout = 0;
};

// Distillation of a trained model, the teacher, into the model of the run (models/distillation.h).
struct DistillConfig {
  std::string teacher = {};       // run directory or checkpoint of the teacher; empty: no distillation
  std::string target = "logits";  // heads | attention | logits
};

// The options of each attention kind in model.attention. The key is the name of the kind.
using AttentionTables = std::map<std::string, OptionValues>;

struct Config {
  RunConfig run;
  DataConfig data;
  ModelConfig model;
  AttentionTables attention;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainConfig train;
  LoraConfig lora;
  DistillConfig distill;
};

// A config key whose value contradicts another value.
struct KeyProblem {
  std::string key;  // for example "model.norm"
  std::string message;
};

// The purpose for which a command reads a config. A --set option for a key that the command does not use is
// an error, unless the UnusedKeyPolicy is `ignore`.
enum class ConfigPurpose {
  training,       // uses all config keys
  evaluation,     // uses the config keys of the model and the data set
  generation,     // uses the config keys of the model
  transcription,  // uses the config keys of the model and of speech features
  benchmark,      // uses the config keys of the model, the optimizer and the batch size
};

// The treatment of keys that have no effect in a config. If such a key is allowed, the Config contains the
// default value of the key.
enum class UnusedKeyPolicy {
  // A key without effect is an error in the file and in a --set option.
  refuse,
  // A key without effect is an error only in a --set option. Used for files that the program has written.
  ignore_in_file,
  // A key without effect is never an error. Used for --set options that apply to several configs.
  ignore,
};

struct ConfigLoadOptions {
  UnusedKeyPolicy unused_key_policy = UnusedKeyPolicy::refuse;
  ConfigPurpose purpose = ConfigPurpose::training;
  std::string device = {};  // overrides run.device, unless empty
  bool check_model = true;  // whether contradictions between options of the model are errors
};

// Reads a config from the file at `path`, the files that this file extends, and the --set options in
// `config_settings`. If `path` is empty, the config consists of the defaults and the --set options. The key
// `extends` of a file is the path of its base file, relative to the folder of the file. A --set option has
// the form "table.key=value", where the value is a TOML value or a string without quotes.
//
// Settings are applied in this order: base files, file at `path`, --set options. Later values override
// earlier values. If a file sets only one of the keys train.steps and train.epochs, and the value is
// positive, the other key becomes 0. The same rule applies to the --set options, which are treated as one
// file.
//
// The table [attention] contains the options of the attention kind in model.attention. If there are several
// kinds, each kind has a table [attention.KIND]. Options of a kind that the final value of model.attention
// does not contain are checked, but have no effect.
//
// If `options.unused_key_policy` is UnusedKeyPolicy::refuse, keys without effect are errors, with these
// exceptions:
// - Base files can set such keys.
// - The file can set such a key to its default value.
// - A --set option can reset such a key of the file to its default value.
// - If a key of the file has no effect because of a --set option, a warning is logged instead.
//
// In the returned Config, all keys without effect have their default values.
//
// Relative paths in [data] and model.init are relative to the working directory. In the returned Config,
// these paths are absolute. If `options.purpose` is not ConfigPurpose::training, data.feature_cache and
// data.image_cache are read only from the --set options.
Config load_config(const std::string& path, const std::vector<std::string>& config_settings,
                   const ConfigLoadOptions& options = {});

// Returns a config as TOML text that contains all keys that have an effect. For a file that contains the
// returned text, load_config() returns an equal Config.
std::string to_toml(const Config& config);

// Returns the reason why a key ("table.key") has no effect in a config, or "" if the key has an effect. For
// example, the reason for data.downscale can be
//   belongs to data sets of images of a known size, and data.dataset is "copy"
// If `name` is an unknown key of [attention], returns a reason. Throws std::out_of_range for unknown keys of
// other tables.
std::string explain_unused_key(const Config& config, const std::string& name);

// Returns help on config keys as text for a terminal. For each key, the text contains the meaning, the
// default value, the valid values, and the configs in which the key has an effect. The text describes the
// keys of the table named `filter`, and the keys whose "table.key" contains `filter`. An empty `filter`
// selects all keys. Throws ConfigError if no key is selected.
std::string format_config_help(const std::string& filter = "");

// Returns all keys, with the names "table.key". The keys of attention kinds occur as attention.KEY and
// attention.KIND.KEY.
std::vector<OptionSpec> list_config_keys();

// Returns the names ("table.key") of the keys that have different values in two configs, in schema order.
// Omits keys that have an effect in neither config.
std::vector<std::string> find_differing_keys(const Config& a, const Config& b);

// Names of keys ("table.key"), and their values in a training as TOML text.
using FixedKeys = std::vector<std::pair<std::string, std::string>>;

// Returns the keys whose values in `config` change what the weights of a model compute that was trained with
// `trained`, such as model.norm: keys and options of attention kinds with OptionSpec::is_fixed_by_training.
// The layers are compared one by one. An option that a replaced kind and its replacement share is compared,
// too. model.attention is such a key unless each replaced kind and its replacement have
// AttentionCapabilities::approximates_softmax.
FixedKeys find_keys_fixed_by_training(const Config& trained, const Config& config);

// Returns true if a resumed run may change the value of a key ("table.key").
bool may_change_on_resume(const std::string& name);

// Returns the value of a key ("table.key") as TOML text. If the config has no value for a key of [attention],
// returns "none". Throws std::out_of_range for unknown keys of other tables.
std::string format_config_value(const Config& config, const std::string& name);

// Returns the contradictions between the options of the model, and with the data set.
std::vector<KeyProblem> find_model_problems(const Config& config);
// Returns the attention kinds of the layers with their options. A kind without a table has its defaults.
AttentionPattern make_attention_pattern(const Config& config);
// Returns a problem of the option that gives the attention a segment memory: what the memory `needs`. Returns
// an empty list if there is no segment memory.
std::vector<KeyProblem> make_memory_problem(const AttentionPattern& attention, const std::string& needs);

}  // namespace tapeformer
