#include "train/config/scope.h"

#include <algorithm>
#include <iterator>

#include "train/config/value.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

KeyScope make_model_type_scope(const Names& types) {
  return {{"models of type " + join_quoted(types), "model.type",
           [types](const Config& c) { return is_listed(types, c.model.type); }}};
}

}  // namespace

KeyScope make_unrestricted_scope() {
  return {};
}

KeyScope combine_scopes(KeyScope a, const KeyScope& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

KeyScope make_non_streaming_scope() {
  return {{"batches of independent examples", "data.streams",
           [](const Config& c) { return !c.data.has("streams") || !c.data.get<bool>("streams"); }}};
}

KeyScope make_image_model_scope() {
  return make_model_type_scope({"image"});
}

KeyScope make_sequence_model_scope() {
  return make_model_type_scope({"sequence"});
}

KeyScope make_set_model_scope() {
  return make_model_type_scope({"set"});
}

KeyScope make_classifier_scope() {
  return make_model_type_scope({"classification"});
}

KeyScope make_autoregressive_model_scope() {
  return make_model_type_scope({"image", "sequence"});
}

KeyScope make_speech_model_scope() {
  return make_model_type_scope({"speech"});
}

// Returns the conditions under which model.positions has an effect. LSTMs, classifiers and Set Transformers
// do not use the key.
KeyScope make_model_with_positions_scope() {
  return combine_scopes(make_model_type_scope({"image", "sequence", "speech"}), make_transformer_scope());
}

KeyScope make_transformer_scope() {
  return {{"Transformers", "model.encoder",
           [](const Config& c) { return c.model.type != "speech" || c.model.encoder == "transformer"; }}};
}

KeyScope make_causal_option_scope() {
  KeyScope scope = combine_scopes(make_speech_model_scope(), make_transformer_scope());
  scope.back().config_description = "Transformers (an LSTM is causal if model.bidirectional = false)";
  return scope;
}

KeyScope make_lstm_scope() {
  return combine_scopes(
      make_speech_model_scope(),
      {{"LSTMs", "model.encoder", [](const Config& c) { return c.model.encoder == "lstm"; }}});
}

KeyScope make_concatenated_position_scope() {
  return combine_scopes(
      make_autoregressive_model_scope(),
      {{"the positions \"sinusoidal\" and \"grid\"", "model.positions", [](const Config& c) {
          return is_listed({"sinusoidal", "grid"}, c.model.positions);
        }}});
}

KeyScope make_axial_position_scope() {
  return combine_scopes(make_autoregressive_model_scope(),
                        {{"the positions \"axial\"", "model.positions",
                          [](const Config& c) { return c.model.positions == "axial"; }}});
}

KeyScope make_subsampling_scope() {
  return combine_scopes(make_speech_model_scope(),
                        {{"subsampling by 2 or 4", "model.subsampling",
                          [](const Config& c) { return c.model.subsampling > 1; }}});
}

// Returns the condition under which model.dropout has an effect. An LSTM with one layer has no dropout,
// because there is no dropout after the last layer.
KeyScope make_layer_dropout_scope() {
  return {{"Transformers and LSTMs of several layers", "model.layers", [](const Config& c) {
             return c.model.type != "speech" || c.model.encoder != "lstm" || c.model.layers > 1;
           }}};
}

KeyScope make_attention_dropout_scope(const AttentionCatalogue& catalogue) {
  const auto explain = [explain_kind = catalogue.explain_missing_dropout](const Config& c) {
    for (const std::string& kind : c.model.attention)
      if (const std::string reason = explain_kind ? explain_kind(kind) : ""; !reason.empty())
        return quote_toml_string(kind) + " has no dropout of attention weights: " + reason;
    return std::string();
  };
  return combine_scopes(
      make_transformer_scope(),
      {{"models whose attention kinds all have dropout of attention weights", "model.attention",
        [explain](const Config& c) { return explain(c).empty(); }, explain}});
}

KeyScope make_cuda_device_scope() {
  return {{"CUDA devices", "run.device", [](const Config& c) { return c.run.device != "cpu"; }}};
}

KeyScope make_float32_product_scope() {
  return {{"the precision \"float32\"", "run.precision",
           [](const Config& c) { return c.run.precision == "float32"; }}};
}

KeyScope make_clipping_scope() {
  return {{"optimizer.clip_norm above 0", "optimizer.clip_norm",
           [](const Config& c) { return c.optimizer.clip_norm > 0; }}};
}

KeyScope make_dropout_scope() {
  return combine_scopes(make_layer_dropout_scope(),
                        {{"training with dropout", "model.dropout", [](const Config& c) {
                            return c.model.dropout > 0 || c.model.attention_dropout > 0;
                          }}});
}

}  // namespace tapeformer
