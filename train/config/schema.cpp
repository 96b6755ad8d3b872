#include "train/config/schema.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "core/errors.h"
#include "data/catalogue.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr double kLargestSize = 1 << 20;  // keeps every product of sizes far from overflow

template <class T>
OptionValue to_option(const T& value) {
  if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return std::vector<double>(value.begin(), value.end());
  else
    return value;
}

template <class T>
T from_option(const OptionValue& value) {
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    const auto& numbers = std::get<std::vector<double>>(value);
    return {numbers.begin(), numbers.end()};
  } else {
    return std::get<T>(value);
  }
}

// Adds the keys of one table; types and defaults come from the members of the struct.
template <class Section>
class TableSchema {
 public:
  TableSchema(std::vector<SchemaKey>& keys, std::string table, Section Config::*section)
      : keys_(keys), table_(std::move(table)), section_(section) {}

  // Sets the scope and role of the keys that follow.
  void keys_of(KeyScope scope, KeyRole role) {
    scope_ = std::move(scope);
    role_ = role;
  }

  template <class T>
  SchemaKey& add(const char* name, T Section::*member, const std::string& help) {
    SchemaKey key;
    key.table = table_;
    key.scope = scope_.value();  // throws if keys_of was not called
    key.role = role_;
    key.get = [section = section_, member](const Config& config) {
      return to_option(config.*section.*member);
    };
    key.set = [section = section_, member](Config& config, const OptionValue& value) {
      config.*section.*member = from_option<T>(value);
    };
    key.spec.name = name;
    key.spec.default_value = key.get(Config{});
    key.spec.help = help;
    key.whole = std::is_same_v<T, std::vector<int64_t>>;
    keys_.push_back(std::move(key));
    return keys_.back();
  }

 private:
  std::vector<SchemaKey>& keys_;
  std::string table_;
  Section Config::*section_;
  std::optional<KeyScope> scope_;
  KeyRole role_ = KeyRole::training;
};

std::string device_problem(const OptionValue& value) {
  const auto& device = std::get<std::string>(value);
  if (device == "auto" || device == "cpu" || device == "cuda" || device == "cuda-emulated") return "";
  const std::string index = device.starts_with("cuda:") ? device.substr(5) : "";
  const bool digits =
      !index.empty() && index.size() <= 3 && index.find_first_not_of("0123456789") == std::string::npos;
  return digits ? "" : "expected \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got " + quoted(device);
}

// Returns the default of a key for the data sets of speech, and the data sets with another default:
// "16000 (fsdd: 8000)".
template <class T>
std::string defaults_text(T KnownSet::*member) {
  std::vector<T> values;
  for (const KnownSet& set : known_sets())
    if (set.*member != T{}) values.push_back(set.*member);
  const T usual = *std::max_element(values.begin(), values.end(), [&](const T& a, const T& b) {
    return std::count(values.begin(), values.end(), a) < std::count(values.begin(), values.end(), b);
  });
  std::string others;
  for (const KnownSet& set : known_sets())
    if (set.*member != T{} && set.*member != usual)
      others += concat_text(others.empty() ? "" : ", ", set.name, ": ", set.*member);
  return concat_text(usual, others.empty() ? "" : concat_text(" (", others, ")"));
}

// The name becomes a folder under runs/.
std::string name_problem(const OptionValue& value) {
  const auto& name = std::get<std::string>(value);
  const bool bad = name == "." || name == ".." || name.size() > 200 ||
                   std::any_of(name.begin(), name.end(), [](unsigned char c) { return c == '/' || c < 32; });
  return bad ? "expected a name that can be a folder, got " + quoted(name) : "";
}

void add_run(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "run", &Config::run);
  table.keys_of(scope::every_config(), KeyRole::process);
  table.add("name", &RunConfig::name, "name of the run and of its folder; empty: the config file's name")
      .problem = name_problem;
  table.add("seed", &RunConfig::seed, "seed of all random numbers").at_least(0);
  table.add("device", &RunConfig::device, "auto, cpu, cuda or cuda:N").problem = device_problem;
  table.keys_of(scope::every_config(), KeyRole::model);
  table
      .add("precision", &RunConfig::precision,
           "arithmetic of the model; bfloat16, on a CUDA device: factors of products, and what layers keep "
           "between them, are rounded; weights, sums and the residual stream stay float32")
      .one_of({"float32", "bfloat16"});
  table.keys_of(scope::both(scope::cuda_devices(), scope::float32_products()), KeyRole::model);
  table.add("tf32", &RunConfig::tf32, "float32 products on a CUDA device may round their operands to TF32");
  table.keys_of(scope::both(scope::cuda_devices(), scope::autoregressive_models()), KeyRole::model);
  table.add("cuda_graphs", &RunConfig::cuda_graphs,
            "on a CUDA device: record the launches of a step once and repeat them");
  table.keys_of(scope::every_config(), KeyRole::process);
  table.add("threads", &RunConfig::threads, "CPU threads; 0: all cores").range(0, 4096);
}

void add_data(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "data", &Config::data);
  table.keys_of(scope::every_config(), KeyRole::model);
  table.add("dataset", &DataConfig::dataset, "data set").one_of(set_names([](const KnownSet& set) {
    return set.type != DatasetType::lexicon;
  }));
  table.keys_of(scope::every_config(), KeyRole::data);
  table.add("batch_size", &DataConfig::batch_size, "sequences per batch").range(1, kLargestSize);
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("shuffle", &DataConfig::shuffle, "new order in every epoch");
  table.keys_of(scope::every_config(), KeyRole::data);
  table.add("limit", &DataConfig::limit, "training examples to use; 0: all").at_least(0);
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("eval_limit", &DataConfig::eval_limit, "evaluation examples to use; 0: all").at_least(0);
  table.keys_of(scope::images(), KeyRole::model);
  table.add("downscale", &DataConfig::downscale, "average blocks of k x k pixels")
      .one_of_integers({1, 2, 4, 7});
  table.keys_of(scope::images_or_speech(), KeyRole::data);
  table.add("validation", &DataConfig::validation, "examples held out from the end of the training split")
      .at_least(0);
  table.keys_of(scope::symbols(), KeyRole::model);
  table.add("max_length", &DataConfig::max_length, "sequence length").range(8, kLargestSize);
  table.add("symbols", &DataConfig::symbols, "symbols besides the separator").range(1, 65535);
}

void add_speech_data(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "data", &Config::data);
  table.keys_of(scope::speech(), KeyRole::data);
  table.add("path", &DataConfig::path,
            "folder of the corpus; empty: that of the set in the data directories");
  table.add("max_frames", &DataConfig::max_frames, "largest number of frames in a batch, padding included")
      .range(1, 1e9);
  table.keys_of(scope::parts(), KeyRole::data);
  table.add("train_part", &DataConfig::train_part,
            "folder of the training part in data.path; empty: " + defaults_text(&KnownSet::train_part));
  table.add("valid_part", &DataConfig::valid_part,
            "folder of the part that training evaluates on; empty: " + defaults_text(&KnownSet::valid_part));
  table.add("test_part", &DataConfig::test_part,
            "folder of the test part; empty: " + defaults_text(&KnownSet::test_part));
  table.keys_of(scope::lexicon(), KeyRole::data);
  table.add("lexicon", &DataConfig::lexicon,
            "file with the phones of words; empty: CMUdict in the data directories, for kaldi none, as "
            "the text consists of phones");
  table.keys_of(scope::unknown_words(), KeyRole::data);
  table
      .add("unknown_words", &DataConfig::unknown_words,
           "treatment of utterances with words that the lexicon lacks")
      .one_of({"refuse", "drop"});
  table.keys_of(scope::speech(), KeyRole::data);
  table.add("bad_utterances", &DataConfig::bad_utterances, "treatment of utterances that cannot be used")
      .one_of({"drop", "refuse"});
  table.keys_of(scope::timit(), KeyRole::data);
  table.add("phone_set", &DataConfig::phone_set, "phones of training; scores use 39 phones")
      .one_of({"timit61", "timit48", "timit39"});
}

void add_speech_features(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "data", &Config::data);
  table.keys_of(scope::recordings(), KeyRole::features);
  table
      .add("sample_rate", &DataConfig::sample_rate,
           "samples per second; 0: " + defaults_text(&KnownSet::sample_rate))
      .range(0, 192000);
  table.add("resample", &DataConfig::resample,
            "convert recordings of another rate; by default they are refused");
  table
      .add("channel", &DataConfig::channel,
           "channel of recordings with several channels, from 0; -1: such recordings are refused")
      .range(-1, 1023);
  table
      .add("max_seconds", &DataConfig::max_seconds,
           "longest recording or segment; decoding stops at this limit; 0: no limit")
      .range(0, 1e9);
  table.add("num_mel_bins", &DataConfig::num_mel_bins, "number of mel filters").range(1, 1024);
  table.keys_of(scope::recordings(), KeyRole::training);
  table.add("dither", &DataConfig::dither, "noise on training recordings, in 16-bit samples").range(0, 1000);
  table.keys_of(scope::speech(), KeyRole::features);
  table.add("deltas", &DataConfig::deltas, "time derivatives of the features, up to this order").range(0, 2);
  table.add("cmvn", &DataConfig::cmvn, "frames over which the mean of the features is subtracted")
      .one_of({"none", "utterance", "speaker", "global"});
  table.keys_of(scope::normalised_features(), KeyRole::features);
  table.add("cmvn_variance", &DataConfig::cmvn_variance, "divide by the standard deviation too");
  table.keys_of(scope::speech(), KeyRole::training);
  table.add("spec_augment", &DataConfig::spec_augment,
            "mask frequency bands and time spans in training, as SpecAugment");
  table.keys_of(scope::spec_augment(), KeyRole::training);
  table.add("frequency_masks", &DataConfig::frequency_masks, "number of frequency masks").range(0, 100);
  table.add("frequency_width", &DataConfig::frequency_width, "largest number of bins in a frequency mask")
      .range(0, 1024);
  table.add("time_masks", &DataConfig::time_masks, "number of time masks").range(0, 100);
  table.add("time_width", &DataConfig::time_width, "largest number of frames in a time mask")
      .range(0, kLargestSize);
  table.add("time_share", &DataConfig::time_share, "largest share of the utterance in a time mask")
      .range(0, 1);
  table.keys_of(scope::speech(), KeyRole::data);
  table.add("feature_cache", &DataConfig::feature_cache, "folder for computed features; empty: memory only");
}

void add_model(std::vector<SchemaKey>& keys, const AttentionCatalogue& catalogue) {
  TableSchema table(keys, "model", &Config::model);
  table.keys_of(scope::every_config(), KeyRole::model);
  table
      .add("type", &ModelConfig::type,
           "image: bytes with a mixture of logistics; sequence: symbols; speech: frames with CTC")
      .one_of({"image", "sequence", "speech"});
  table.keys_of(scope::transformers(), KeyRole::model);
  table.add("attention", &ModelConfig::attention, "attention kind; its options are in [attention]")
      .one_of(catalogue.names);
  table.keys_of(scope::every_config(), KeyRole::model);
  table.add("layers", &ModelConfig::layers, "encoder layers").range(1, 10000);
  table.keys_of(scope::transformers(), KeyRole::model);
  table.add("heads", &ModelConfig::heads, "attention heads").range(1, 4096);
  table.add("head_dim", &ModelConfig::head_dim, "dimensions of a head; the width is heads x head_dim")
      .range(1, 4096);
  table.add("feedforward", &ModelConfig::feedforward, "hidden dimensions of the feed-forward block")
      .range(1, kLargestSize);
  table.keys_of(scope::layer_dropout(), KeyRole::training);
  table.add("dropout", &ModelConfig::dropout, "dropout of residual branches and feed-forward").below_one();
  table.keys_of(scope::attention_dropout(catalogue.drops_weights), KeyRole::training);
  table.add("attention_dropout", &ModelConfig::attention_dropout, "dropout of attention weights").below_one();
  table.keys_of(scope::image_models(), KeyRole::model);
  table.add("mixtures", &ModelConfig::mixtures, "logistics per modelled byte").range(1, 64);
  table.keys_of(scope::concatenated_positions(), KeyRole::model);
  table
      .add("value_dim", &ModelConfig::value_dim,
           "dimensions of the value embedding, positions take the rest of the width; 0: half the width")
      .range(0, kLargestSize);
  table.keys_of(scope::transformers(), KeyRole::model);
  table.add("norm", &ModelConfig::norm, "layer norm after or before each block").one_of({"post", "pre"});
  table.add("activation", &ModelConfig::activation, "activation of the feed-forward block")
      .one_of({"relu", "gelu"});
  table.keys_of(scope::autoregressive_models(), KeyRole::model);
  table
      .add("positions", &ModelConfig::positions,
           "sinusoidal over the index, or over row, column and channel; axial: learned, one table an axis")
      .one_of({"sinusoidal", "grid", "axial"});
  table.keys_of(scope::axial_positions(), KeyRole::model);
  table
      .add("axial_shape", &ModelConfig::axial_shape,
           "positions of each axis, slowest first; their product is at least the length")
      .range(1, kLargestSize);
  table.add("axial_dims", &ModelConfig::axial_dims, "features of each axis; they add up to the width")
      .range(1, kLargestSize);
  table.keys_of(scope::transformers(), KeyRole::training);
  table.add("recompute", &ModelConfig::recompute, "recompute each layer in backward to save memory");
  table.keys_of(scope::transformers(), KeyRole::model);
  table.add("reversible", &ModelConfig::reversible,
            "reversible layers: activation memory does not grow with the depth; needs norm = \"pre\"");
  table
      .add("feedforward_chunks", &ModelConfig::feedforward_chunks,
           "pieces in which the feed-forward block runs over the batch's tokens")
      .range(1, kLargestSize);
  table.keys_of(scope::autoregressive_models(), KeyRole::model);
  table
      .add("loss_chunks", &ModelConfig::loss_chunks,
           "pieces in which predictor and loss run over the batch's tokens")
      .range(1, kLargestSize);
}

void add_speech_model(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "model", &Config::model);
  table.keys_of(scope::speech_models(), KeyRole::model);
  table.add("encoder", &ModelConfig::encoder, "attention layers, or LSTM layers")
      .one_of({"transformer", "lstm"});
  table.keys_of(scope::lstms(), KeyRole::model);
  table.add("hidden", &ModelConfig::hidden, "cells of a layer in each direction").range(1, kLargestSize);
  table.add("bidirectional", &ModelConfig::bidirectional,
            "a second LSTM in each layer, from the last frame to the first");
  table.keys_of(scope::causal_choice(), KeyRole::model);
  table.add("causal", &ModelConfig::causal,
            "no frame depends on later frames; transcribe --stream needs this");
  table.keys_of(scope::speech_models(), KeyRole::model);
  table.add("subsampling", &ModelConfig::subsampling, "number of neighbouring frames in one step")
      .one_of_integers({1, 2, 4});
  table.keys_of(scope::subsampled(), KeyRole::model);
  table
      .add("subsampling_kind", &ModelConfig::subsampling_kind,
           "stack: concatenated frames; conv: a convolution over 3 frames for each factor of 2")
      .one_of({"stack", "conv"});
  table.keys_of(scope::both(scope::speech_models(), scope::transformers()), KeyRole::model);
  table.add("max_frames", &ModelConfig::max_frames, "longest utterance").range(1, kLargestSize);
  table.keys_of(scope::speech_models(), KeyRole::training);
  table
      .add("ctc_mean", &ModelConfig::ctc_mean,
           "the loss of a batch is the mean over its utterances or its labels")
      .one_of({"utterance", "label"});
}

void add_optimizer(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "optimizer", &Config::optimizer);
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("kind", &OptimizerConfig::kind, "optimizer").one_of({"radam", "adam", "adamw", "sgd"});
  table.add("lr", &OptimizerConfig::lr, "learning rate").at_least(0);
  table.keys_of(scope::adaptive_optimizers(), KeyRole::training);
  auto& betas = table.add("betas", &OptimizerConfig::betas, "decay of the first and second moment");
  betas.below_one();
  betas.count = 2;
  table.add("eps", &OptimizerConfig::eps, "added to the root of the second moment").at_least(0);
  table.keys_of(scope::every_config(), KeyRole::training);
  table
      .add("weight_decay", &OptimizerConfig::weight_decay,
           "decoupled decay of all parameters (radam, adamw); added to the gradient (adam, sgd)")
      .at_least(0);
  table.keys_of(scope::sgd(), KeyRole::training);
  table.add("momentum", &OptimizerConfig::momentum, "momentum of sgd").below_one();
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("clip_norm", &OptimizerConfig::clip_norm, "largest gradient norm; 0: no clipping").at_least(0);
  table.keys_of(scope::clipping(), KeyRole::training);
  table.add("clip", &OptimizerConfig::clip, "norm over all gradients, or of each tensor by itself")
      .one_of({"global", "per_tensor"});
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("ema", &OptimizerConfig::ema, "decay of the moving average of the weights; 0: none").below_one();
}

void add_schedule(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "schedule", &Config::schedule);
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("kind", &ScheduleConfig::kind, "learning rate over time")
      .one_of({"constant", "step", "cosine", "plateau"});
  table.add("warmup_steps", &ScheduleConfig::warmup_steps, "linear rise from 0 over the first steps")
      .at_least(0);
  table.keys_of(scope::schedules({"step"}), KeyRole::training);
  table.add("step_at", &ScheduleConfig::step_at, "steps at which the rate is multiplied by factor")
      .at_least(1);
  table.keys_of(scope::schedules({"step", "plateau"}), KeyRole::training);
  table.add("factor", &ScheduleConfig::factor, "factor of each drop").range(0, 1);
  table.keys_of(scope::schedules({"cosine", "plateau"}), KeyRole::training);
  table.add("final_lr_ratio", &ScheduleConfig::final_lr_ratio, "lowest rate as a share of lr").range(0, 1);
  table.keys_of(scope::schedules({"plateau"}), KeyRole::training);
  table
      .add("patience", &ScheduleConfig::patience,
           "evaluations in a row without improvement that are tolerated; one more lowers the rate")
      .at_least(0);
  table
      .add("threshold", &ScheduleConfig::threshold,
           "smallest relative decrease of the loss that is an improvement")
      .range(0, 1);
}

void add_train(std::vector<SchemaKey>& keys) {
  TableSchema table(keys, "train", &Config::train);
  table.keys_of(scope::every_config(), KeyRole::training);
  table.add("steps", &TrainConfig::steps, "length in optimizer steps; this or epochs").at_least(0);
  table.add("epochs", &TrainConfig::epochs, "length in passes over the training data; this or steps")
      .range(0, 1e9);
  table.add("accumulate", &TrainConfig::accumulate, "batches per optimizer step").range(1, kLargestSize);
  table.add("eval_every", &TrainConfig::eval_every, "steps between evaluations; 0: only at the end")
      .at_least(0);
  table.add("eval_epochs", &TrainConfig::eval_epochs, "epochs between evaluations; 0: by eval_every")
      .at_least(0);
  table
      .add("checkpoint_every", &TrainConfig::checkpoint_every,
           "steps between checkpoints; 0: only at the end")
      .at_least(0);
  table.add("log_every", &TrainConfig::log_every, "steps between lines of metrics.jsonl").at_least(1);
  table.add("keep_last", &TrainConfig::keep_last, "checkpoints to keep besides the best one").at_least(1);
  table
      .add("time_limit_minutes", &TrainConfig::time_limit_minutes,
           "stop with a checkpoint after this time; 0: no limit")
      .at_least(0);
  table.keys_of(scope::every_config(), KeyRole::data);
  table.add("eval_batch_size", &TrainConfig::eval_batch_size, "batch of evaluations; 0: data.batch_size")
      .range(0, kLargestSize);
  table.keys_of(scope::dropout(), KeyRole::training);
  table.add("dropout_steps", &TrainConfig::dropout_steps, "steps after which dropout is off; 0: never")
      .at_least(0);
}

}  // namespace

const KeyCondition* SchemaKey::broken_condition(const Config& config) const {
  for (const KeyCondition& condition : scope)
    if (!condition.holds(config)) return &condition;
  return nullptr;
}

SchemaKey& SchemaKey::range(double min, double max) {
  spec.min = min;
  spec.max = max;
  return *this;
}

SchemaKey& SchemaKey::at_least(double min) {
  spec.min = min;
  return *this;
}

SchemaKey& SchemaKey::below_one() {
  return range(0, std::nextafter(1.0, 0.0));
}

SchemaKey& SchemaKey::one_of(std::vector<std::string> choices) {
  spec.choices = std::move(choices);
  return *this;
}

SchemaKey& SchemaKey::one_of_integers(std::vector<int64_t> choices) {
  problem = [choices = std::move(choices)](const OptionValue& value) -> std::string {
    const int64_t number = std::get<int64_t>(value);
    if (std::find(choices.begin(), choices.end(), number) != choices.end()) return "";
    std::string text = "expected one of";
    for (int64_t choice : choices) text += (choice == choices.front() ? " " : ", ") + std::to_string(choice);
    return text + ", got " + std::to_string(number);
  };
  return *this;
}

std::vector<std::string> config_tables() {
  return {"run", "data", "model", "attention", "optimizer", "schedule", "train"};
}

std::vector<SchemaKey> config_schema(const AttentionCatalogue& catalogue) {
  std::vector<SchemaKey> keys;
  add_run(keys);
  add_data(keys);
  add_speech_data(keys);
  add_speech_features(keys);
  add_model(keys, catalogue);
  add_speech_model(keys);
  add_optimizer(keys);
  add_schedule(keys);
  add_train(keys);
  return keys;
}

std::string broken_text(const KeyCondition& condition, const Config& config) {
  return "belongs to " + condition.owner + ", and " + condition.key + " is " +
         config_value_text(config, condition.key);
}

bool uses_attention(const Config& config) {
  return scope::transformers().front().holds(config);
}

}  // namespace tapeformer
