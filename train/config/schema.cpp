#include "train/config/schema.h"

#include <algorithm>

#include "core/threads/default_threads.h"
#include "train/config/part_keys.h"
#include "train/config/table_schema.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

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
  TableSchemaBuilder table(keys, "run", &Config::run);
  table.set_scope(make_unrestricted_scope(), OptionUse::process);
  table.add("name", &RunConfig::name, "name of the run and of its folder; empty: the name of the config file")
      .allow_change_on_resume();
  keys.back().find_error = find_name_error;
  table.add("seed", &RunConfig::seed, "seed of all random numbers").require_at_least(0);
  table.add("device", &RunConfig::device, "auto, cpu, cuda or cuda:N").allow_change_on_resume();
  keys.back().find_error = find_device_error;
  table.set_scope(make_unrestricted_scope(), OptionUse::model);
  table
      .add("precision", &RunConfig::precision,
           "arithmetic of the model; bfloat16 rounds the operands of products and the activations between "
           "layers; weights, sums and the residual stream stay float32")
      .require_one_of({"float32", "bfloat16"});
  table.set_scope(combine_scopes(make_cuda_device_scope(), make_float32_product_scope()), OptionUse::model);
  table.add("tf32", &RunConfig::tf32, "float32 products on a CUDA device may round their operands to TF32");
  table.set_scope(combine_scopes(make_cuda_device_scope(), make_autoregressive_model_scope()),
                  OptionUse::model);
  table.add("cuda_graphs", &RunConfig::cuda_graphs, "capture steps as CUDA graphs and replay them")
      .allow_change_on_resume();
  table.set_scope(make_cuda_device_scope(), OptionUse::model);
  table
      .add(
          "time_products", &RunConfig::time_products,
          "time several algorithms of each matrix product, use the fastest and keep the choices in the run's "
          "folder; false: repeated runs give the same bits")
      .allow_change_on_resume();
  table.set_scope(make_unrestricted_scope(), OptionUse::process);
  table.add("threads", &RunConfig::threads, "CPU threads; 0: $OMP_NUM_THREADS or all cores")
      .require_range(0, kMaxThreadCount)
      .allow_change_on_resume();
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table
      .add("tensorboard", &RunConfig::tensorboard,
           "also write TensorBoard event files with scalars, samples and the config")
      .allow_change_on_resume();
}

void add_model(std::vector<SchemaKey>& keys, const AttentionCatalogue& catalogue) {
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.set_scope(make_unrestricted_scope(), OptionUse::model);
  table
      .add("type", &ModelConfig::type,
           "image: mixture of logistics over bytes; sequence: categorical distribution over tokens; "
           "classification: one class per sequence; set: a number or a mixture of Gaussians per set of "
           "vectors; "
           "speech: CTC over frames")
      .require_one_of({"image", "sequence", "classification", "set", "speech"});
  table.set_scope(make_transformer_scope(), OptionUse::model);
  OptionSpec& attention =
      table.add("attention", &ModelConfig::attention,
                "attention kind, with options in [attention], or a list of kinds that repeats over the "
                "layers, with options in [attention.KIND]");
  attention.require_one_of(catalogue.kind_names);
  attention.allow_scalar = true;
  table.set_scope(make_unrestricted_scope(), OptionUse::model);
  table.add("layers", &ModelConfig::layers, "encoder layers").require_range(1, 10000);
  table.set_scope(make_transformer_scope(), OptionUse::model);
  table.add("heads", &ModelConfig::heads, "attention heads").require_range(1, 4096);
  table.add("head_dim", &ModelConfig::head_dim, "dimensions of a head; the width is heads x head_dim")
      .require_range(1, 4096);
  table.add("feedforward", &ModelConfig::feedforward, "hidden dimensions of the feed-forward block")
      .require_range(1, kMaxSize);
  table.set_scope(make_layer_dropout_scope(), OptionUse::training);
  table.add("dropout", &ModelConfig::dropout, "dropout of residual branches and feed-forward")
      .require_fraction_below_one();
  table.set_scope(make_attention_dropout_scope(catalogue), OptionUse::training);
  table.add("attention_dropout", &ModelConfig::attention_dropout, "dropout of attention weights")
      .require_fraction_below_one();
  table.set_scope(make_image_model_scope(), OptionUse::model);
  table.add("mixtures", &ModelConfig::mixtures, "logistics per predicted byte").require_range(1, 64);
  table.set_scope(make_concatenated_position_scope(), OptionUse::model);
  table
      .add("value_dim", &ModelConfig::value_dim,
           "dimensions of the value embedding; positions have the rest of the width; 0: half of the width")
      .require_range(0, kMaxSize);
  table.set_scope(make_transformer_scope(), OptionUse::model);
  table.add("norm", &ModelConfig::norm, "layer norm after or before each block")
      .require_one_of({"post", "pre"});
  table.add("activation", &ModelConfig::activation, "activation of the feed-forward block")
      .require_one_of({"relu", "gelu"});
}

// Adds the keys of [model] for position embeddings, for options that save memory, and for the training loss.
void add_positions_and_memory(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.set_scope(make_model_with_positions_scope(), OptionUse::model);
  table
      .add(
          "positions", &ModelConfig::positions,
          "sinusoidal: of the index; grid: sinusoidal, of row, column and channel; axial: learned, one table "
          "per axis; rotary: rotations of queries and keys, or of their features; none")
      .require_one_of({"sinusoidal", "grid", "axial", "rotary", "none"});
  table.set_scope(make_axial_position_scope(), OptionUse::model);
  table
      .add("axial_shape", &ModelConfig::axial_shape,
           "number of positions per axis, slowest axis first; the product must be at least the length")
      .require_range(1, kMaxSize);
  table.add("axial_dims", &ModelConfig::axial_dims, "features per axis; the sum must be the width")
      .require_range(1, kMaxSize);
  table.set_scope(make_transformer_scope(), OptionUse::training);
  table.add("recompute", &ModelConfig::recompute, "recompute each layer in the backward pass to save memory");
  table.set_scope(make_transformer_scope(), OptionUse::model);
  table.add("reversible", &ModelConfig::reversible,
            "use reversible layers, whose activation memory does not grow with depth; needs norm = \"pre\"");
  table
      .add("feedforward_chunks", &ModelConfig::feedforward_chunks,
           "number of chunks of tokens in which the feed-forward block runs")
      .require_range(1, kMaxSize);
  table.set_scope(make_autoregressive_model_scope(), OptionUse::model);
  table
      .add("loss_chunks", &ModelConfig::loss_chunks,
           "number of chunks of tokens in which predictor and loss run")
      .require_range(1, kMaxSize);
  table.set_scope(make_sequence_model_scope(), OptionUse::model);
  table.add("tied_embeddings", &ModelConfig::tied_embeddings,
            "the predictor uses the weight of the value embedding; needs positions \"axial\", \"rotary\" or "
            "\"none\"");
  table.set_scope(make_sequence_model_scope(), OptionUse::training);
  table
      .add("label_smoothing", &ModelConfig::label_smoothing,
           "label smoothing: share of the uniform distribution in the training targets")
      .require_fraction_below_one();
  table
      .add("z_loss", &ModelConfig::z_loss,
           "coefficient of the squared log-sum-exp of the logits in the training loss")
      .require_at_least(0);
}

void add_example_models(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.set_scope(make_set_model_scope(), OptionUse::model);
  table
      .add("decoder_layers", &ModelConfig::decoder_layers,
           "layers of self-attention after the pooling of a set")
      .require_range(0, 10000);
  table.set_scope(make_classifier_scope(), OptionUse::model);
  table
      .add("summary_tokens", &ModelConfig::summary_tokens,
           "learned tokens before the sequence, over which the classifier takes the mean; 0: none, the mean "
           "of "
           "all tokens")
      .require_range(0, 1 << 20);
}

void add_initial_weights(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("init", &ModelConfig::init,
            "run directory or checkpoint whose weights a new run starts from; empty: random weights");
}

void add_speech_model(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "model", &Config::model);
  table.set_scope(make_speech_model_scope(), OptionUse::model);
  table.add("encoder", &ModelConfig::encoder, "kind of the layers").require_one_of({"transformer", "lstm"});
  table.set_scope(make_lstm_scope(), OptionUse::model);
  table.add("hidden", &ModelConfig::hidden, "cells of a layer in each direction").require_range(1, kMaxSize);
  table.add("bidirectional", &ModelConfig::bidirectional,
            "add an LSTM in the opposite direction to each layer");
  table.set_scope(make_causal_option_scope(), OptionUse::model);
  table.add("causal", &ModelConfig::causal, "mask later frames; needed by transcribe --stream");
  table.set_scope(make_speech_model_scope(), OptionUse::model);
  table.add("subsampling", &ModelConfig::subsampling, "number of frames per step of the model")
      .require_one_of_integers({1, 2, 4});
  table.set_scope(make_subsampling_scope(), OptionUse::model);
  table
      .add("subsampling_kind", &ModelConfig::subsampling_kind,
           "stack: concatenated frames; conv: a convolution over 3 frames for each factor of 2")
      .require_one_of({"stack", "conv"});
  table.set_scope(combine_scopes(make_speech_model_scope(), make_transformer_scope()), OptionUse::model);
  table.add("max_frames", &ModelConfig::max_frames, "longest utterance").require_range(1, kMaxSize);
  table.set_scope(make_speech_model_scope(), OptionUse::training);
  table.add("ctc_mean", &ModelConfig::ctc_mean, "items over which the loss of a batch is a mean")
      .require_one_of({"utterance", "label"});
}

// Returns the table of a part whose kind is the member `selector` of a section, and whose options are the
// member `options`.
template <class Section>
PartTable make_part_table(std::string name, Section Config::*section, std::string Section::*selector,
                          std::vector<PartKind> kinds) {
  return {.table_name = name,
          .selector = name == "data" ? "dataset" : "kind",
          .noun = name == "data" ? "data set" : name,
          .get_kind = [=](const Config& c) -> const std::string& { return c.*section.*selector; },
          .get_options = [section](const Config& c) -> const OptionValues& { return (c.*section).options; },
          .get_mutable_options = [section](Config& c) -> OptionValues& { return (c.*section).options; },
          .kinds = std::move(kinds)};
}

void add_data(std::vector<SchemaKey>& keys) {
  const PartTable part =
      make_part_table("data", &Config::data, &DataConfig::dataset, list_parts(list_dataset_kinds()));
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_unrestricted_scope(), OptionUse::model);
  table.add("dataset", &DataConfig::dataset, "data set").require_one_of(list_part_names(part.kinds));
  table.set_scope(make_unrestricted_scope(), OptionUse::data);
  table.add("batch_size", &DataConfig::batch_size, "sequences per batch, summed over all processes")
      .require_range(1, kMaxSize);
  table.set_scope(make_non_streaming_scope(), OptionUse::training);
  table.add("shuffle", &DataConfig::shuffle, "use a new random order in each epoch");
  table.set_scope(make_unrestricted_scope(), OptionUse::data);
  table.add("limit", &DataConfig::limit, "training examples to use; 0: all").require_at_least(0);
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("eval_limit", &DataConfig::eval_limit, "evaluation examples to use; 0: all")
      .require_at_least(0)
      .allow_change_on_resume();
  add_part_keys(part, keys);
}

void add_optimizer(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("optimizer", &Config::optimizer, &OptimizerConfig::kind,
                                         list_parts(list_optimizer_kinds()));
  TableSchemaBuilder table(keys, "optimizer", &Config::optimizer);
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("kind", &OptimizerConfig::kind, "optimizer").require_one_of(list_part_names(part.kinds));
  table.add("lr", &OptimizerConfig::lr, "learning rate").require_at_least(0);
  table
      .add("weight_decay", &OptimizerConfig::weight_decay,
           "decoupled decay of all parameters (radam, adamw, adafactor); added to the gradient (adam, sgd)")
      .require_at_least(0);
  table.add("clip_norm", &OptimizerConfig::clip_norm, "largest gradient norm; 0: no clipping")
      .require_at_least(0);
  table.set_scope(make_clipping_scope(), OptionUse::training);
  table.add("clip", &OptimizerConfig::clip, "norm to clip: of all gradients together, or of each tensor")
      .require_one_of({"global", "per_tensor"});
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("ema", &OptimizerConfig::ema, "decay of the moving average of the weights; 0: none")
      .require_fraction_below_one();
  add_part_keys(part, keys);
}

void add_schedule(std::vector<SchemaKey>& keys) {
  const PartTable part = make_part_table("schedule", &Config::schedule, &ScheduleConfig::kind,
                                         list_parts(list_schedule_kinds()));
  TableSchemaBuilder table(keys, "schedule", &Config::schedule);
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
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
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("steps", &TrainConfig::steps, "length in optimizer steps; excludes epochs")
      .require_at_least(0)
      .allow_change_on_resume();
  table.add("epochs", &TrainConfig::epochs, "length in passes over the training data; excludes steps")
      .require_range(0, 1e9)
      .allow_change_on_resume();
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
  table.set_scope(make_unrestricted_scope(), OptionUse::data);
  table.add("eval_batch_size", &TrainConfig::eval_batch_size, "batch size of evaluations; 0: data.batch_size")
      .require_range(0, kMaxSize)
      .allow_change_on_resume();
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table
      .add("reduce_dtype", &TrainConfig::reduce_dtype,
           "dtype in which several processes sum their gradients; bfloat16 halves the traffic")
      .require_one_of({"float32", "bfloat16"})
      .allow_change_on_resume();
  table.set_scope(make_dropout_scope(), OptionUse::training);
  table.add("dropout_steps", &TrainConfig::dropout_steps, "number of steps with dropout; 0: all steps")
      .require_at_least(0);
}

}  // namespace

std::vector<std::string> list_config_tables() {
  return {"run", "data", "model", "attention", "optimizer", "schedule", "train"};
}

std::vector<SchemaKey> make_config_schema(const AttentionCatalogue& catalogue) {
  std::vector<SchemaKey> keys;
  add_run(keys);
  add_data(keys);
  add_model(keys, catalogue);
  add_positions_and_memory(keys);
  add_example_models(keys);
  add_speech_model(keys);
  add_initial_weights(keys);
  add_optimizer(keys);
  add_schedule(keys);
  add_train(keys);
  return keys;
}

std::string describe_unmet_condition(const KeyCondition& condition, const Config& config) {
  return "belongs to " + condition.config_description + ", and " + condition.key + " is " +
         format_config_value(config, condition.key) +
         (condition.explain ? " (" + condition.explain(config) + ")" : "");
}

bool uses_attention(const Config& config) {
  return make_transformer_scope().front().is_met(config);
}

}  // namespace tapeformer
