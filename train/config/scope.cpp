#include "train/config/scope.h"

#include <algorithm>
#include <iterator>

#include "data/sets/catalogue.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns a list of the names in quotes, such as `"a", "b" and "c"`.
std::string join_names(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + quote_toml_string(names[i]);
  return text;
}

// Returns a scope with one condition, which holds if `filter` returns true for the data set of a config. In
// error messages, `config_description` describes these data sets. If `config_description` is empty, the
// messages list the names of the data sets.
KeyScope make_dataset_scope(const CatalogueFilter& filter, std::string config_description = "") {
  if (config_description.empty()) {
    const Names names = list_dataset_names(filter);
    config_description = (names.size() > 1 ? "the data sets " : "the data set ") + join_names(names);
  }
  return {{config_description, "data.dataset", [filter](const Config& c) {
             const CatalogueEntry* const set = find_catalogue_entry(c.data.dataset);
             return set && filter(*set);
           }}};
}

bool is_speech(const CatalogueEntry& set) {
  return set.type == DatasetType::speech;
}

// Returns whether a data set generates examples of random length.
bool has_variable_lengths(const CatalogueEntry& set) {
  return set.type == DatasetType::expressions || set.type == DatasetType::vectors;
}

KeyScope make_model_type_scope(const Names& types) {
  return {{"models of type " + join_names(types), "model.type",
           [types](const Config& c) { return contains(types, c.model.type); }}};
}

}  // namespace

KeyScope make_unrestricted_scope() {
  return {};
}

KeyScope combine_scopes(KeyScope a, const KeyScope& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

KeyScope make_known_image_size_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) { return set.type == DatasetType::images && set.height > 0; },
      "data sets of images of a known size");
}

KeyScope make_image_folder_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) { return set.format == DatasetFormat::image_folder; });
}

KeyScope make_color_image_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) {
    return set.format == DatasetFormat::image_folder ||
           (set.type == DatasetType::images && set.channels == 3);
  });
}

KeyScope make_symbol_sequence_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return set.type == DatasetType::sequences; });
}

KeyScope make_generated_sequence_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) {
    return set.type == DatasetType::sequences || has_variable_lengths(set);
  });
}

KeyScope make_variable_length_scope() {
  return make_dataset_scope(has_variable_lengths);
}

KeyScope make_gaussian_mixture_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) { return set.format == DatasetFormat::set_mixture; });
}

KeyScope make_listops_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return set.format == DatasetFormat::listops; });
}

KeyScope make_speech_or_known_image_size_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) {
        return is_speech(set) || (set.type == DatasetType::images && set.height > 0);
      },
      "data sets of images of a known size and of speech");
}

KeyScope make_text_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return set.type == DatasetType::text; });
}

KeyScope make_non_streaming_scope() {
  return {
      {"batches of independent examples", "data.streams", [](const Config& c) { return !c.data.streams; }}};
}

KeyScope make_data_path_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return is_speech(set) || set.needs_path; },
                            "data sets of speech and the data sets \"images\" and \"text\"");
}

KeyScope make_split_share_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) {
    return set.type == DatasetType::text || set.format == DatasetFormat::image_folder;
  });
}

KeyScope make_sentencepiece_scope() {
  return combine_scopes(make_text_scope(),
                        {{"the tokenizer \"sentencepiece\"", "data.tokenizer",
                          [](const Config& c) { return c.data.tokenizer == "sentencepiece"; }}});
}

KeyScope make_sentencepiece_training_scope() {
  return combine_scopes(make_sentencepiece_scope(),
                        {{"SentencePiece models that are trained from the text", "data.sentencepiece_model",
                          [](const Config& c) { return c.data.sentencepiece_model.empty(); }}});
}

KeyScope make_sentencepiece_file_scope() {
  return combine_scopes(make_sentencepiece_scope(),
                        {{"SentencePiece models that are read from a file", "data.sentencepiece_model",
                          [](const Config& c) { return !c.data.sentencepiece_model.empty(); }}});
}

KeyScope make_speech_data_scope() {
  return make_dataset_scope(is_speech, "data sets of speech");
}

KeyScope make_audio_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return is_speech(set) && set.sample_rate > 0; },
                            "data sets of recordings");
}

KeyScope make_corpus_part_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) { return is_speech(set) && set.has_part_folders(); });
}

KeyScope make_lexicon_scope() {
  return make_dataset_scope(
      [](const CatalogueEntry& set) { return is_speech(set) && set.label_kind != SpeechLabelKind::phones; });
}

// Returns the conditions under which data.unknown_words has an effect. The key has an effect only if the
// transcripts contain words. In some data sets, such as Kaldi directories, transcripts can contain phones or
// words. For such data sets, data.unknown_words has an effect only if data.lexicon is set.
KeyScope make_unknown_word_scope() {
  return combine_scopes(make_lexicon_scope(),
                        {{"transcripts with a lexicon", "data.lexicon", [](const Config& c) {
                            const CatalogueEntry* const set = find_catalogue_entry(c.data.dataset);
                            return !set || set->label_kind != SpeechLabelKind::phones_or_words ||
                                   !c.data.lexicon.empty();
                          }}});
}

KeyScope make_timit_scope() {
  return make_dataset_scope([](const CatalogueEntry& set) { return set.format == DatasetFormat::timit; });
}

KeyScope make_normalised_feature_scope() {
  return combine_scopes(make_speech_data_scope(), {{"normalised features", "data.cmvn",
                                                    [](const Config& c) { return c.data.cmvn != "none"; }}});
}

KeyScope make_spec_augment_scope() {
  return combine_scopes(make_speech_data_scope(), {{"data.spec_augment = true", "data.spec_augment",
                                                    [](const Config& c) { return c.data.spec_augment; }}});
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
          return contains({"sinusoidal", "grid"}, c.model.positions);
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
