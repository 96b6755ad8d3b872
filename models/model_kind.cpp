#include "models/model_kind.h"

#include <algorithm>

#include "core/options/option_table.h"
#include "core/options/part.h"
#include "models/autoregressive_model.h"
#include "models/classifier.h"
#include "models/set_transformer.h"
#include "models/speech/model.h"
#include "models/translation/model.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;
using Problems = std::vector<OptionProblem>;

constexpr double kMaxSize = 1 << 20;  // the product of three such numbers fits in int64_t

OptionTable<NormOptions> make_norm_table() {
  OptionTable<NormOptions> table(OptionUse::model);
  using O = NormOptions;
  table.add_choice("norm_kind", &O::kind, {{"layer", NormKind::layer}, {"rms", NormKind::rms}},
                   "layer norms, or RMS norms without mean and bias");
  table.add("norm_eps", &O::eps, "number that norms add to the variance or the mean square")
      .require_range(1e-12, 1)
      .fix_by_training();
  table.add("norm_offset", &O::offset, "RMS norms multiply by 1 + weight").fix_by_training();
  return table;
}

OptionTable<RotaryScaling> make_rotary_scaling_table() {
  OptionTable<RotaryScaling> table(OptionUse::model);
  using O = RotaryScaling;
  using enum RotaryScalingKind;
  const OptionCondition scaled{"rotary_scaling", {"none"}, true}, ramp{"rotary_scaling", {"llama3", "yarn"}};
  table
      .add_choice("rotary_scaling", &O::kind,
                  {{"none", none}, {"linear", linear}, {"llama3", llama3}, {"yarn", yarn}},
                  "smaller angles of rotary positions, for texts that are longer than those of an earlier "
                  "training: all angles, or those of the features that turn slowly")
      .use_if({"positions", {"rotary"}})
      .fix_by_training();
  table.add("rotary_factor", &O::factor, "divisor of the scaled angles")
      .require_range(1e-3, 1e6)
      .use_if(scaled)
      .fix_by_training();
  table.add("rotary_length", &O::length, "longest text of the earlier training, in tokens")
      .require_range(0, 1e12)
      .use_if(ramp)
      .fix_by_training();
  table
      .add("rotary_slow", &O::slow,
           "turns in a text of the earlier training up to which angles are scaled fully")
      .require_range(1e-6, 1e6)
      .use_if(ramp)
      .fix_by_training();
  table.add("rotary_fast", &O::fast, "turns from which angles are not scaled; YaRN: 32")
      .require_range(1e-6, 1e6)
      .use_if(ramp)
      .fix_by_training();
  table
      .add("rotary_amplitude", &O::amplitude,
           "factor of rotated queries and keys; 0: 1 + 0.1 ln(rotary_factor)")
      .require_range(0, 1e3)
      .use_if({"rotary_scaling", {"yarn"}})
      .fix_by_training();
  return table;
}

OptionTable<EncoderOptions> make_rotary_table() {
  OptionTable<EncoderOptions> table(OptionUse::model);
  using O = EncoderOptions;
  table.add("rotary_base", &O::rotary_base, "base of the angles of rotary positions")
      .require_range(1.001, 1e12)
      .use_if({"positions", {"rotary"}})
      .fix_by_training();
  table
      .add("rotary_share", &O::rotary_share, "share of the dimensions of a head that rotary positions rotate")
      .require_range(1e-3, 1)
      .use_if({"positions", {"rotary"}})
      .fix_by_training();
  table.include(&O::rotary_scaling, make_rotary_scaling_table());
  return table;
}

// Adds the options that decide what layers store for the backward pass.
void add_memory_options(OptionTable<EncoderOptions>& table) {
  using O = EncoderOptions;
  table.add("recompute", &O::recompute, "recompute each layer in the backward pass to save memory")
      .use_for(OptionUse::training);
  table
      .add("reversible", &O::reversible,
           "use reversible layers, whose activation memory does not grow with depth; needs norm = \"pre\"")
      .fix_by_training();
  table
      .add_choice(
          "reversible_input", &O::doubled_input, {{"both", true}, {"second", false}},
          "halves of the state of reversible layers that begin as the input, as in \"Reformer\" or only "
          "the second")
      .use_if({"reversible"})
      .fix_by_training();
  table
      .add("feedforward_chunks", &O::feedforward_chunks,
           "number of chunks of tokens in which the feed-forward block runs")
      .require_range(1, kMaxSize);
}

// The options of all models. LSTMs use only layers and dropout.
OptionTable<EncoderOptions> make_encoder_table() {
  OptionTable<EncoderOptions> table(OptionUse::model);
  using O = EncoderOptions;
  table.add("layers", &O::layers, "encoder layers").require_range(1, 10000);
  table.add("heads", &O::heads, "attention heads").require_range(1, 4096).fix_by_training();
  table.add("head_dim", &O::head_dim, "dimensions of a head").require_range(1, 4096).fix_by_training();
  table
      .add("kv_heads", &O::kv_heads,
           "heads of keys and values of self-attention, a divisor of heads; 0: as many as heads")
      .require_range(0, 4096)
      .fix_by_training();
  table.add("width", &O::model_width, "dimensions of the residual stream; 0: heads x head_dim")
      .require_range(0, kMaxSize);
  table.add("qk_norm", &O::qk_norm, "RMS norms of the queries and keys of each head, before rotations");
  table.add("projection_biases", &O::projection_biases,
            "biases of the projections of queries, keys, values and results");
  table.add("out_bias", &O::out_bias, "bias of the projection of results").use_if({"projection_biases"});
  table
      .add("feedforward", &O::feedforward,
           "hidden dimensions of the feed-forward block; 0: layers without such a block")
      .require_range(0, kMaxSize);
  table.add("gated_feedforward", &O::gated_feedforward,
            "multiply the hidden units by a third linear layer of the input: SwiGLU, GEGLU");
  table.add("feedforward_biases", &O::feedforward_biases, "biases of the feed-forward block");
  table.add("dropout", &O::dropout, "dropout of residual branches and feed-forward")
      .use_for(OptionUse::training)
      .require_fraction_below_one()
      .default_value = 0.1;
  table.add("attention_dropout", &O::attention_dropout, "dropout of attention weights")
      .use_for(OptionUse::training)
      .require_fraction_below_one();
  table.add_choice("norm", &O::pre_norm, {{"post", false}, {"pre", true}}, "norm after or before each block")
      .fix_by_training();
  table.include(&O::norm, make_norm_table());
  table
      .add("parallel_residual", &O::parallel_residual,
           "attention and feed-forward read the same input and are added together; needs norm = \"pre\"")
      .fix_by_training();
  table
      .add_choice("activation", &O::activation,
                  {{"relu", Activation::relu},
                   {"gelu", Activation::gelu},
                   {"gelu_tanh", Activation::gelu_tanh},
                   {"silu", Activation::silu}},
                  "activation of the feed-forward block")
      .fix_by_training();
  add_memory_options(table);
  return table;
}

template <class Options>
OptionSpec& add_positions(OptionTable<Options>& table, void (*set)(Options&, const std::string&)) {
  return table.add_setter(
      {.name = "positions",
       .default_value = std::string("sinusoidal"),
       .help = "sinusoidal: of the index; grid: sinusoidal, of row, column and channel; axial: learned, "
               "one table per axis; learned: sinusoidal at first; rotary: rotations of queries and keys, or "
               "of their features; none",
       .choices = {"sinusoidal", "grid", "axial", "learned", "rotary", "none"},
       .use = OptionUse::model,
       .is_fixed_by_training = true},
      [set](Options& to, const OptionValue& value) {
        const auto& name = std::get<std::string>(value);
        to.encoder.rotary = name == "rotary";
        set(to, name);
      });
}

void set_position_kind(AutoregressiveModelOptions& to, const std::string& name) {
  to.position_kind = name == "sinusoidal" ? PositionKind::sinusoidal
                     : name == "grid"     ? PositionKind::grid
                     : name == "axial"    ? PositionKind::axial
                     : name == "learned"  ? PositionKind::learned
                                          : PositionKind::none;
}

void add_loss_chunks(auto& table, auto member) {
  table.add("loss_chunks", member, "number of chunks of tokens in which predictor and loss run")
      .require_range(1, kMaxSize);
}

// The options of models of images and of sequences.
OptionTable<AutoregressiveModelOptions> make_table(const AutoregressiveModelOptions& /*defaults*/) {
  OptionTable<AutoregressiveModelOptions> table(OptionUse::model);
  using O = AutoregressiveModelOptions;
  table.include(&O::encoder, make_encoder_table());
  table.add("mixtures", &O::mixtures, "logistics per predicted byte").require_range(1, 64);
  add_positions(table, &set_position_kind);
  table.include(&O::encoder, make_rotary_table());
  table
      .add("position_count", &O::position_count,
           "rows of the table of learned positions; 0: the longest sequence")
      .require_range(0, kMaxSize)
      .use_if({"positions", {"learned"}});
  table
      .add("value_dim", &O::value_embedding_dim,
           "dimensions of the value embedding; positions have the rest of the width; 0: half of the width")
      .require_range(0, kMaxSize)
      .use_if({"positions", {"sinusoidal", "grid"}});
  OptionTable<AxialShape> axial(OptionUse::model);
  axial
      .add("axial_shape", &AxialShape::shape,
           "number of positions per axis, slowest axis first; the product must be at least the length")
      .require_range(1, kMaxSize)
      .use_if({"positions", {"axial"}});
  axial.add("axial_dims", &AxialShape::dims, "features per axis; the sum must be the width")
      .require_range(1, kMaxSize)
      .use_if({"positions", {"axial"}});
  table.include(&O::axial_shape, axial);
  add_loss_chunks(table, &O::loss_chunks);
  table.add("tied_embeddings", &O::tied_embeddings,
            "the predictor uses the weight of the value embedding; needs positions \"axial\", \"learned\", "
            "\"rotary\" or \"none\"");
  table.add("predictor_bias", &O::predictor_bias, "bias of the predictor");
  OptionTable<CrossEntropyOptions> loss;
  loss.add("label_smoothing", &CrossEntropyOptions::label_smoothing,
           "label smoothing: share of the uniform distribution in the training targets; translation: 0.1 by "
           "default")
      .require_fraction_below_one();
  loss.add("z_loss", &CrossEntropyOptions::z_loss,
           "coefficient of the squared log-sum-exp of the logits in the training loss")
      .require_at_least(0);
  table.include(&O::training_loss_options, loss);
  return table;
}

OptionTable<ClassifierOptions> make_table(const ClassifierOptions& /*defaults*/) {
  OptionTable<ClassifierOptions> table(OptionUse::model);
  table.include(&ClassifierOptions::encoder, make_encoder_table());
  table
      .add("summary_tokens", &ClassifierOptions::summary_tokens,
           "learned tokens before the sequence, over which the classifier takes the mean; 0: none, the "
           "mean of all tokens")
      .require_range(0, kMaxSize);
  table
      .add("masked_share", &ClassifierOptions::masked_share,
           "pretraining: share of the tokens that are masked and predicted, instead of the class of the "
           "sequence; 0: none")
      .require_range(0, 0.99);
  return table;
}

OptionTable<SetTransformerOptions> make_table(const SetTransformerOptions& /*defaults*/) {
  OptionTable<SetTransformerOptions> table(OptionUse::model);
  table.include(&SetTransformerOptions::encoder, make_encoder_table());
  table
      .add("decoder_layers", &SetTransformerOptions::decoder_layers,
           "layers of self-attention after the pooling of a set; translation: layers of the decoder, 0 by "
           "default, as many as the encoder")
      .require_range(0, 10000)
      .default_value = int64_t{1};
  return table;
}

OptionTable<SpeechModelOptions> make_table(const SpeechModelOptions& /*defaults*/) {
  using O = SpeechModelOptions;
  OptionTable<O> table(OptionUse::model);
  table.include(&O::encoder, make_encoder_table());
  const OptionCondition transformer{"encoder", {"transformer"}}, lstm{"encoder", {"lstm"}};
  table.add_choice("encoder", &O::encoder_kind,
                   {{"transformer", SpeechEncoderKind::transformer}, {"lstm", SpeechEncoderKind::lstm}},
                   "kind of the layers");
  add_positions<O>(table, [](O& to, const std::string& name) {
    to.use_sinusoidal_positions = name == "sinusoidal";
  }).use_if(transformer);
  table.include(&O::encoder, make_rotary_table());
  table.add("hidden", &O::lstm_hidden, "cells of a layer in each direction")
      .require_range(1, kMaxSize)
      .use_if(lstm);
  table
      .add("bidirectional", &O::lstm_bidirectional,
           "add an LSTM in the opposite direction to each layer; without it, an LSTM is causal")
      .use_if(lstm);
  table
      .add("causal", &O::causal,
           "mask later frames, as streaming needs; an LSTM is causal if it is not bidirectional")
      .use_if(transformer)
      .fix_by_training();
  table.add("subsampling", &O::subsampling, "number of frames per step of the model")
      .require_one_of_integers({1, 2, 4});
  table
      .add_choice("subsampling_kind", &O::subsampling_kind,
                  {{"stack", SubsamplingKind::stack}, {"conv", SubsamplingKind::conv}},
                  "stack: concatenated frames; conv: a convolution over 3 frames for each factor of 2")
      .use_if({"subsampling", {"2", "4"}});
  table.add("max_frames", &O::max_frames, "longest utterance").require_range(1, kMaxSize).use_if(transformer);
  table
      .add_choice("ctc_mean", &O::reduction,
                  {{"utterance", CtcReduction::per_utterance}, {"label", CtcReduction::per_label}},
                  "items over which the loss of a batch is a mean")
      .use_for(OptionUse::training);
  return table;
}

OptionTable<TranslationModelOptions> make_table(const TranslationModelOptions& /*defaults*/) {
  using O = TranslationModelOptions;
  OptionTable<O> table(OptionUse::model);
  table.include(&O::encoder, make_encoder_table());
  table.add("decoder_layers", &O::decoder_layers, "layers of the decoder; 0: as many as the encoder")
      .require_range(0, 10000);
  table.add_setter({.name = "cross_attention",
                    .default_value = std::string("softmax"),
                    .help = "kind of attention of the decoder to the source",
                    .choices = {"softmax", "linear"},
                    .use = OptionUse::model,
                    .is_fixed_by_training = true},
                   [](O& to, const OptionValue& value) {
                     const auto& name = std::get<std::string>(value);
                     to.encoder.cross_attention = {{name, find_attention_kind(name).default_options()}};
                   });
  add_positions<O>(table, [](O& to, const std::string& name) {
    to.positions = name == "sinusoidal" ? AddedPositions::sinusoidal
                   : name == "learned"  ? AddedPositions::learned
                                        : AddedPositions::none;
  });
  table.include(&O::encoder, make_rotary_table());
  table.add("shared_embeddings", &O::shared_embeddings,
            "one weight for the embeddings of both sides and the predictor");
  table
      .add("label_smoothing", &O::label_smoothing,
           "label smoothing: share of the uniform distribution in the training targets")
      .use_for(OptionUse::training)
      .require_fraction_below_one();
  add_loss_chunks(table, &O::loss_chunks);
  return table;
}

template <class Options>
const OptionTable<Options>& table_of() {
  static const auto& table = *new OptionTable<Options>(make_table(Options()));
  return table;
}

Problems find_option_problems(const ClassifierOptions& options) {
  return find_option_problems(options.encoder);
}

Problems find_option_problems(const SpeechModelOptions& options) {
  return options.encoder_kind == SpeechEncoderKind::lstm ? Problems() : find_option_problems(options.encoder);
}

// Adds a problem if models of this type have no such positions.
void check_positions(const OptionValues& values, const Names& refused, Problems& problems) {
  const auto& name = values.get<std::string>("positions");
  if (std::find(refused.begin(), refused.end(), name) == refused.end()) return;
  problems.push_back({"positions", "\"" + name + "\" needs a model of type " +
                                       (name == "learned" ? "\"image\", \"sequence\" or \"translation\""
                                                          : "\"image\" or \"sequence\"")});
}

// Returns a kind with the options of `Options` except for those in `excluded`, and without some values of the
// option "positions".
template <class Options>
ModelKind make_model_kind(std::string name, std::string help, const Names& excluded = {},
                          const Names& refused_positions = {}) {
  ModelKind kind{.name = std::move(name), .help = std::move(help)};
  for (OptionSpec& spec : table_of<Options>().specs())
    if (std::find(excluded.begin(), excluded.end(), spec.name) == excluded.end())
      kind.options.push_back(std::move(spec));
  kind.find_problems = [refused_positions](const OptionValues& values, const AttentionPattern& attention) {
    Problems problems = find_option_problems(read_model_options<Options>(values, attention));
    if (!refused_positions.empty()) check_positions(values, refused_positions, problems);
    return problems;
  };
  return kind;
}

ModelKind make_speech_model_kind() {
  ModelKind kind =
      make_model_kind<SpeechModelOptions>("speech", "CTC over frames", {}, {"axial", "grid", "learned"});
  const std::vector<OptionSpec> shared = make_encoder_table().specs();
  const Names kept = {"layers", "dropout", "reversible_input"};  // LSTMs are never reversible
  for (OptionSpec& spec : kind.options)
    if (has_option(shared, spec.name) && std::find(kept.begin(), kept.end(), spec.name) == kept.end())
      spec.use_if({"encoder", {"transformer"}});
  return kind;
}

Registry<ModelKind>& model_registry() {
  static auto& kinds = *new Registry<ModelKind>(
      "model type",
      {make_model_kind<AutoregressiveModelOptions>("image", "mixture of logistics over bytes",
                                                   {"tied_embeddings", "label_smoothing", "z_loss"}),
       make_model_kind<AutoregressiveModelOptions>("sequence", "categorical distribution over tokens",
                                                   {"mixtures"}),
       make_model_kind<ClassifierOptions>("classification", "one class per sequence"),
       make_model_kind<SetTransformerOptions>("set", "a number or a mixture of Gaussians per set of vectors"),
       make_speech_model_kind(),
       make_model_kind<TranslationModelOptions>("translation", "encoder and decoder for pairs of sentences",
                                                {}, {"axial", "grid"})});
  return kinds;
}

}  // namespace

template <class Options>
Options read_model_options(const OptionValues& values, const AttentionPattern& attention) {
  auto options = table_of<Options>().read(values);
  options.encoder.attention = attention;
  const AttentionPattern& cross = options.encoder.cross_attention;
  if (!cross.empty() && supports(cross, &AttentionCapabilities::weight_dropout))
    options.encoder.cross_attention_dropout = options.encoder.attention_dropout;
  if (!supports(attention, &AttentionCapabilities::weight_dropout)) options.encoder.attention_dropout = 0;
  return options;
}

template AutoregressiveModelOptions read_model_options(const OptionValues&, const AttentionPattern&);
template ClassifierOptions read_model_options(const OptionValues&, const AttentionPattern&);
template SetTransformerOptions read_model_options(const OptionValues&, const AttentionPattern&);
template SpeechModelOptions read_model_options(const OptionValues&, const AttentionPattern&);
template TranslationModelOptions read_model_options(const OptionValues&, const AttentionPattern&);

void register_model_kind(ModelKind kind) {
  model_registry().add(std::move(kind));
}

const std::deque<ModelKind>& list_model_kinds() {
  return model_registry().list();
}

const ModelKind& find_model_kind(const std::string& name) {
  return model_registry().find(name);
}

}  // namespace tapeformer
