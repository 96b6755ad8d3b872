#include "train/tasks/registry/earlier_tokens.h"

#include "core/base/errors.h"
#include "core/system/log.h"
#include "train/build.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/initial_weights.h"
#include "train/checkpoint/json_entries.h"
#include "train/tasks/registry/make_task.h"
#include "train/tasks/speech/description.h"
#include "train/tasks/text/description.h"

namespace tapeformer {
namespace {

using TokenizerPointer = std::shared_ptr<const Tokenizer>;

constexpr const char* kRemedy =
    "; model.init_tokens = \"new\" makes new tokens from the data, whose embeddings and outputs start anew";

bool has_tokenizer(const Config& config) {
  return config.data.has("sentencepiece_model");
}

bool has_phones(const Config& config) {
  return find_dataset_kind(config.data.dataset).type == DatasetType::speech;
}

std::string get_tokenizer_name(const Config& config) {
  return config.data.get<std::string>("tokenizer");
}

// Returns whether the config trains a SentencePiece model on its data.
bool trains_sentencepiece(const Config& config) {
  return has_tokenizer(config) && get_tokenizer_name(config) == kSentencePieceTokenizerName &&
         config.data.get<std::string>("sentencepiece_model").empty();
}

// Returns the key of the file of the tokenizer, or "" if the tokenizer has none.
std::string find_tokenizer_file_key(const Config& config) {
  const std::string name = get_tokenizer_name(config);
  return name == kSentencePieceTokenizerName ? "sentencepiece_model"
         : name == kBpeTokenizerName         ? "tokenizer_file"
                                             : "";
}

// Returns whether the config names no tokenizer.json, so that only a checkpoint can have the tokenizer.
bool lacks_bpe_file(const Config& config) {
  return has_tokenizer(config) && get_tokenizer_name(config) == kBpeTokenizerName &&
         config.data.get<std::string>("tokenizer_file").empty();
}

// Returns whether the tokens depend on the data, and are not those of a file.
bool makes_tokens_from_data(const Config& config) {
  return has_phones(config) || trains_sentencepiece(config) ||
         (has_tokenizer(config) && get_tokenizer_name(config) == kCharacterTokenizerName);
}

TokenizerPointer parse_stored_tokenizer(const Checkpoint& checkpoint, const TrainingState& state,
                                        const Config& config) {
  return parse_tokenizer(state.task_json, checkpoint.state_path(),
                         config.data.has("unknown_characters")
                             ? parse_unknown_characters(config.data.get<std::string>("unknown_characters"))
                             : UnknownCharacters::token);
}

PhoneTable parse_stored_phones(const Checkpoint& checkpoint, const TrainingState& state) {
  return parse_speech_metadata(state.task_json, checkpoint.state_path()).phone_table;
}

Config load_config_of(const Checkpoint& checkpoint) {
  return load_config(
      checkpoint.config_path(), {},
      {.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = ConfigPurpose::generation});
}

void check_model_type(const Checkpoint& checkpoint, const Config& config) {
  if (const std::string type = load_config_of(checkpoint).model.type; type != config.model.type)
    throw ConfigError(concat_text("model.init: ", checkpoint.folder(), " is a model of type \"", type,
                                  "\", but model.type is \"", config.model.type, "\""));
}

void check_tokenizer(const Config& config, const Tokenizer& stored, const std::string& folder,
                     const std::string& data_dir) {
  const std::string name = get_tokenizer_name(config);
  if (name != stored.name())
    throw ConfigError(concat_text("model.init: ", folder, " has the tokenizer \"", stored.name(),
                                  "\", but data.tokenizer is \"", name, "\"", kRemedy));
  if (trains_sentencepiece(config)) {
    const OptionValues defaults(find_dataset_kind(config.data.dataset).options);
    if (const auto vocabulary = config.data.get<int64_t>("vocabulary");
        vocabulary != stored.vocabulary_size() && vocabulary != defaults.get<int64_t>("vocabulary"))
      log_warning("data.vocabulary = ", vocabulary, " has no effect: the tokenizer of model.init has ",
                  stored.vocabulary_size(), " tokens");
  } else if (const std::string key = find_tokenizer_file_key(config);
             !key.empty() && !lacks_bpe_file(config) &&
             make_tokenizer(config, data_dir)->serialize() != stored.serialize()) {
    const char* const kind = name == kBpeTokenizerName ? "BPE tokenizer" : "SentencePiece model";
    throw ConfigError(concat_text("model.init: ", folder, " has another ", kind, " than ",
                                  config.data.get<std::string>(key), "; without data.", key,
                                  ", the run takes the one of model.init", kRemedy));
  }
}

bool stores(const TrainingState& state, const std::string& key, const std::string& path) {
  return !state.task_json.empty() && JsonObjectReader(state.task_json, path + ": task.").has_key(key);
}

// Returns the tokens of a checkpoint. A converted checkpoint has no tokens: its config describes them.
TrainedTokens find_tokens(const Checkpoint& checkpoint, const Config& config, const std::string& data_dir) {
  const TrainingState state = checkpoint.read_state();
  TrainedTokens tokens;
  if (state.is_converted && state.task_json.empty()) {
    const Config own = load_config_of(checkpoint);
    if (has_tokenizer(own)) tokens.tokenizer = make_tokenizer(own, data_dir);
  } else if (stores(state, "tokenizer", checkpoint.state_path())) {
    tokens.tokenizer = parse_stored_tokenizer(checkpoint, state, config);
  } else if (stores(state, "phones", checkpoint.state_path())) {
    tokens.phone_table = parse_stored_phones(checkpoint, state);
  }
  return tokens;
}

TrainedTokens read_initial_tokens(const Config& config, const std::string& data_dir) {
  if (!explain_unused_key(config, "model.init_tokens").empty()) return {};  // the data have no tokens
  const Checkpoint checkpoint(find_initial_checkpoint(config.model.init));
  check_model_type(checkpoint, config);
  TrainedTokens tokens = find_tokens(checkpoint, config, data_dir);
  if (has_tokenizer(config) != (tokens.tokenizer != nullptr) ||
      has_phones(config) != tokens.phone_table.has_value())
    throw ConfigError(concat_text("model.init: the tokens of ", checkpoint.folder(),
                                  " are not those of data.dataset = \"", config.data.dataset, "\"", kRemedy));
  if (tokens.tokenizer) {
    check_tokenizer(config, *tokens.tokenizer, checkpoint.folder(), data_dir);
    log_info("the tokens are those of model.init: ", tokens.tokenizer->name(), ", ",
             tokens.tokenizer->vocabulary_size(), " tokens");
  } else if (tokens.phone_table) {
    log_info("the phones are those of model.init: ", tokens.phone_table->class_count() - 1, " phones");
  }
  if (makes_tokens_from_data(config))
    tokens.advice = std::string("; the tokens are those of model.init") + kRemedy;
  return tokens;
}

// Returns the tokens of the last checkpoint of a run, or none if the run makes its tokens again to compare
// them.
TrainedTokens read_own_tokens(const Config& config, const std::string& run_dir) {
  const bool takes = trains_sentencepiece(config) || lacks_bpe_file(config) ||
                     (keeps_initial_tokens(config) && makes_tokens_from_data(config));
  if (!takes) return {};
  const Checkpoint checkpoint(find_checkpoint(run_dir, false));
  const TrainingState state = checkpoint.read_state();
  if (state.is_converted && state.task_json.empty()) return {};
  if (has_phones(config)) return {.phone_table = parse_stored_phones(checkpoint, state)};
  return {.tokenizer = parse_stored_tokenizer(checkpoint, state, config)};
}

}  // namespace

bool keeps_initial_tokens(const Config& config) {
  return !config.model.init.empty() && config.model.init_tokens == "keep";
}

std::unique_ptr<Task> make_task_with_earlier_tokens(const Config& config, TaskEnvironment environment,
                                                    const std::string& resumed_run) {
  if (!resumed_run.empty())
    environment.tokens = read_own_tokens(config, resumed_run);
  else if (keeps_initial_tokens(config))
    environment.tokens = read_initial_tokens(config, environment.data.data_dir);
  return make_task(config, environment);
}

}  // namespace tapeformer
