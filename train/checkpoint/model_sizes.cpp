#include "train/checkpoint/model_sizes.h"

#include "core/errors.h"

namespace tapeformer {
namespace {

std::string describe_setting(const std::string& keys) {
  return "config.toml: " + keys;
}

void add_encoder(const EncoderOptions& encoder, std::vector<ExpectedTensor>& tensors) {
  const int64_t width = encoder.width();
  const auto layer = [](int64_t number) { return "layers." + std::to_string(number) + "."; };
  tensors.push_back({layer(0) + "attention.value_projection.weight", Shape{width, width},
                     describe_setting("model.heads, model.head_dim")});
  tensors.push_back({layer(encoder.layers) + "norm1.weight", {}, describe_setting("model.layers")});
  tensors.push_back(
      {layer(encoder.layers - 1) + "norm1.weight", Shape{width}, describe_setting("model.layers")});
  tensors.push_back({layer(0) + "linear1.weight", Shape{encoder.feedforward, width},
                     describe_setting("model.feedforward")});
}

}  // namespace

std::vector<ExpectedTensor> list_expected_tensors(const AutoregressiveModelOptions& options) {
  const bool is_image_model = options.head == OutputHead::logistic_mixture;
  std::vector<ExpectedTensor> tensors;
  add_encoder(options.encoder, tensors);
  tensors.push_back({"value_embedding.weight",
                     Shape{options.vocabulary_size, options.value_embedding_width()},
                     describe_setting(is_image_model ? "model.value_dim" : "data.symbols, model.value_dim")});
  if (options.tied_embeddings)
    tensors.push_back({"predictor.weight", {}, describe_setting("model.tied_embeddings")});
  else
    tensors.push_back({"predictor.weight", Shape{options.output_width(), options.encoder.output_width()},
                       describe_setting(is_image_model ? "model.mixtures" : "data.symbols")});
  if (options.position_kind == PositionKind::axial)
    for (size_t axis = 0; axis < options.axial_shape.shape.size() && axis < options.axial_shape.dims.size();
         ++axis)
      tensors.push_back({"positions." + std::to_string(axis),
                         Shape{options.axial_shape.shape[axis], options.axial_shape.dims[axis]},
                         describe_setting("model.axial_shape, model.axial_dims")});
  return tensors;
}

std::vector<ExpectedTensor> list_expected_tensors(const ClassifierOptions& options) {
  std::vector<ExpectedTensor> tensors;
  add_encoder(options.encoder, tensors);
  tensors.push_back({"value_embedding.weight", Shape{options.vocabulary_size, options.encoder.width()},
                     describe_setting("data.dataset, model.heads, model.head_dim")});
  tensors.push_back({"predictor.weight", Shape{options.classes, options.encoder.output_width()},
                     describe_setting("data.dataset, model.reversible")});
  tensors.push_back({"summary_tokens", {}, describe_setting("model.summary_tokens")});
  if (options.summary_tokens > 0)
    tensors.back().shape = Shape{options.summary_tokens, options.encoder.width()};
  return tensors;
}

std::vector<ExpectedTensor> list_expected_tensors(const SetTransformerOptions& options) {
  std::vector<ExpectedTensor> tensors;
  const int64_t width = options.encoder.width();
  EncoderOptions all_layers = options.encoder;
  all_layers.layers += options.decoder_layers;
  add_encoder(all_layers, tensors);
  tensors.push_back(
      {"input_projection.weight", Shape{width, options.features}, describe_setting("data.dataset")});
  tensors.push_back(
      {"pooling.seeds.queries", Shape{options.seed_count(), width}, describe_setting("data.components")});
  tensors.push_back(
      {"predictor.weight", Shape{options.output_width(), width}, describe_setting("data.dataset")});
  return tensors;
}

std::vector<ExpectedTensor> list_expected_tensors(const SpeechModelOptions& options) {
  const bool is_lstm = options.encoder_kind == SpeechEncoderKind::lstm;
  const int64_t hidden = options.lstm_hidden, width = options.encoder.width();
  const SubsamplingOptions subsampling{.kind = options.subsampling_kind,
                                       .factor = options.subsampling,
                                       .features = options.features,
                                       .channels = is_lstm ? hidden : width};
  const std::string dims = "state.json: task.dims";
  const int64_t in = subsampling.output_width();
  std::vector<ExpectedTensor> tensors;
  if (subsampling.uses_convolution())
    tensors.push_back({"subsampling.0.weight", Shape{subsampling.channels, 3, options.features}, dims});
  const std::string of_input = subsampling.uses_convolution() ? describe_setting("[model]") : dims;
  if (is_lstm) {
    tensors.push_back({"lstm.weight_hh_l0", Shape{4 * hidden, hidden}, describe_setting("model.hidden")});
    tensors.push_back({"lstm.weight_ih_l0", Shape{4 * hidden, in}, of_input});
    const std::string last = std::to_string(options.lstm_layers - 1),
                      next = std::to_string(options.lstm_layers);
    tensors.push_back({"lstm.bias_hh_l" + next, {}, describe_setting("model.layers")});
    tensors.push_back({"lstm.bias_hh_l" + last, Shape{4 * hidden}, describe_setting("model.layers")});
  } else {
    add_encoder(options.encoder, tensors);
    tensors.push_back({"input_projection.weight", Shape{width, in}, of_input});
  }
  const int64_t out =
      is_lstm ? (options.lstm_bidirectional ? 2 : 1) * hidden : options.encoder.output_width();
  tensors.push_back({"head.weight", Shape{options.classes, out}, "state.json: task.phones"});
  return tensors;
}

void check_model_sizes(const Checkpoint& checkpoint, const std::vector<ExpectedTensor>& expected) {
  const SafetensorsFile file = checkpoint.open_model_file();
  for (const ExpectedTensor& tensor : expected) {
    const auto found = file.entries().find(tensor.name);
    const bool there = found != file.entries().end();
    if (there == tensor.shape.has_value() && (!there || found->second.shape == *tensor.shape)) continue;
    // Throws a more specific error if a file is damaged.
    checkpoint.verify_model_checksum();
    throw CheckpointError(
        concat_text(checkpoint.folder(), "/", tensor.source, ": does not match the tensors: expected ",
                    tensor.name, tensor.shape ? " " + tensor.shape->to_string() : " to be absent",
                    ", model.safetensors has ", there ? found->second.shape.to_string() : "no such tensor"));
  }
}

}  // namespace tapeformer
