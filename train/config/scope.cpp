#include "train/config/scope.h"

#include <algorithm>
#include <iterator>

#include "data/sets/catalogue.h"
#include "train/config/value.h"

namespace tapeformer::scope {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns a list of the names in quotes, such as `"a", "b" and "c"`.
std::string listed(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + quoted(names[i]);
  return text;
}

// Returns the condition that the data set in the config is one that `filter` selects. If `owner` is empty,
// error messages list the names of the data sets.
KeyScope of_sets(const SetFilter& filter, std::string owner = "") {
  if (owner.empty()) {
    const Names names = list_set_names(filter);
    owner = (names.size() > 1 ? "the data sets " : "the data set ") + listed(names);
  }
  return {{owner, "data.dataset", [filter](const Config& c) {
             const CatalogueEntry* const set = find_catalogue_entry(c.data.dataset);
             return set && filter(*set);
           }}};
}

bool is_speech(const CatalogueEntry& set) {
  return set.type == DatasetType::speech;
}

// Returns whether the examples of a data set are generated with random numbers of tokens or elements.
bool has_varied_lengths(const CatalogueEntry& set) {
  return set.type == DatasetType::expressions || set.type == DatasetType::vectors;
}

KeyScope of_types(const Names& types) {
  return {{"models of type " + listed(types), "model.type",
           [types](const Config& c) { return contains(types, c.model.type); }}};
}

KeyScope of_optimizers(const Names& kinds) {
  return {{std::string(kinds.size() > 1 ? "the optimizers " : "the optimizer ") + listed(kinds),
           "optimizer.kind", [kinds](const Config& c) { return contains(kinds, c.optimizer.kind); }}};
}

}  // namespace

KeyScope every_config() {
  return {};
}

KeyScope both(KeyScope a, const KeyScope& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

KeyScope known_images() {
  return of_sets([](const CatalogueEntry& set) { return set.type == DatasetType::images && set.height > 0; },
                 "data sets of images of a known size");
}

KeyScope image_folders() {
  return of_sets([](const CatalogueEntry& set) { return set.format == DatasetFormat::image_folder; });
}

KeyScope color_images() {
  return of_sets([](const CatalogueEntry& set) {
    return set.format == DatasetFormat::image_folder ||
           (set.type == DatasetType::images && set.channels == 3);
  });
}

KeyScope symbols() {
  return of_sets([](const CatalogueEntry& set) { return set.type == DatasetType::sequences; });
}

KeyScope generated_sequences() {
  return of_sets([](const CatalogueEntry& set) {
    return set.type == DatasetType::sequences || has_varied_lengths(set);
  });
}

KeyScope has_varied_lengths() {
  return of_sets(has_varied_lengths);
}

KeyScope mixtures_of_gaussians() {
  return of_sets([](const CatalogueEntry& set) { return set.format == DatasetFormat::set_mixture; });
}

KeyScope listops() {
  return of_sets([](const CatalogueEntry& set) { return set.format == DatasetFormat::listops; });
}

KeyScope speech_or_known_images() {
  return of_sets(
      [](const CatalogueEntry& set) {
        return is_speech(set) || (set.type == DatasetType::images && set.height > 0);
      },
      "data sets of images of a known size and of speech");
}

KeyScope texts() {
  return of_sets([](const CatalogueEntry& set) { return set.type == DatasetType::text; });
}

KeyScope independent_examples() {
  return {
      {"batches of independent examples", "data.streams", [](const Config& c) { return !c.data.streams; }}};
}

KeyScope data_paths() {
  return of_sets([](const CatalogueEntry& set) { return is_speech(set) || set.needs_path; },
                 "data sets of speech and the data sets \"images\" and \"text\"");
}

KeyScope shared_splits() {
  return of_sets([](const CatalogueEntry& set) {
    return set.type == DatasetType::text || set.format == DatasetFormat::image_folder;
  });
}

KeyScope sentencepiece() {
  return both(texts(), {{"the tokenizer \"sentencepiece\"", "data.tokenizer",
                         [](const Config& c) { return c.data.tokenizer == "sentencepiece"; }}});
}

KeyScope trained_sentencepiece() {
  return both(sentencepiece(),
              {{"SentencePiece models that are trained from the text", "data.sentencepiece_model",
                [](const Config& c) { return c.data.sentencepiece_model.empty(); }}});
}

KeyScope speech() {
  return of_sets(is_speech, "data sets of speech");
}

KeyScope recordings() {
  return of_sets([](const CatalogueEntry& set) { return is_speech(set) && set.sample_rate > 0; },
                 "data sets of recordings");
}

KeyScope parts() {
  return of_sets([](const CatalogueEntry& set) { return is_speech(set) && set.has_part_folders(); });
}

KeyScope lexicon() {
  return of_sets(
      [](const CatalogueEntry& set) { return is_speech(set) && set.labels != SpeechLabels::phones; });
}

// Returns the conditions under which data.unknown_words has an effect: the transcripts contain words, which
// need a lexicon. In Kaldi directories, transcripts contain phones if data.lexicon is empty.
KeyScope unknown_words() {
  return both(lexicon(), {{"transcripts with a lexicon", "data.lexicon", [](const Config& c) {
                             const CatalogueEntry* const set = find_catalogue_entry(c.data.dataset);
                             return !set || set->labels != SpeechLabels::phones_or_words ||
                                    !c.data.lexicon.empty();
                           }}});
}

KeyScope timit() {
  return of_sets([](const CatalogueEntry& set) { return set.format == DatasetFormat::timit; });
}

KeyScope normalised_features() {
  return both(speech(),
              {{"normalised features", "data.cmvn", [](const Config& c) { return c.data.cmvn != "none"; }}});
}

KeyScope apply_spec_augment() {
  return both(speech(), {{"data.spec_augment = true", "data.spec_augment",
                          [](const Config& c) { return c.data.spec_augment; }}});
}

KeyScope image_models() {
  return of_types({"image"});
}

KeyScope sequence_models() {
  return of_types({"sequence"});
}

KeyScope set_models() {
  return of_types({"set"});
}

KeyScope classifiers() {
  return of_types({"classification"});
}

KeyScope autoregressive_models() {
  return of_types({"image", "sequence"});
}

KeyScope speech_models() {
  return of_types({"speech"});
}

// Returns the conditions under which model.positions has an effect. LSTMs, classifiers and models of sets do
// not use the key.
KeyScope models_with_positions() {
  return both(of_types({"image", "sequence", "speech"}), transformers());
}

KeyScope transformers() {
  return {{"Transformers", "model.encoder",
           [](const Config& c) { return c.model.type != "speech" || c.model.encoder == "transformer"; }}};
}

KeyScope causal_choice() {
  KeyScope scope = both(speech_models(), transformers());
  scope.back().owner = "Transformers (an LSTM is causal if model.bidirectional = false)";
  return scope;
}

KeyScope lstms() {
  return both(speech_models(),
              {{"LSTMs", "model.encoder", [](const Config& c) { return c.model.encoder == "lstm"; }}});
}

KeyScope concatenated_positions() {
  return both(autoregressive_models(),
              {{"the positions \"sinusoidal\" and \"grid\"", "model.positions", [](const Config& c) {
                  return contains({"sinusoidal", "grid"}, c.model.positions);
                }}});
}

KeyScope axial_positions() {
  return both(autoregressive_models(), {{"the positions \"axial\"", "model.positions",
                                         [](const Config& c) { return c.model.positions == "axial"; }}});
}

KeyScope subsampled() {
  return both(speech_models(), {{"subsampling by 2 or 4", "model.subsampling",
                                 [](const Config& c) { return c.model.subsampling > 1; }}});
}

// Returns the condition under which model.dropout has an effect. An LSTM with one layer has no dropout,
// because there is no dropout after the last layer.
KeyScope layer_dropout() {
  return {{"Transformers and LSTMs of several layers", "model.layers", [](const Config& c) {
             return c.model.type != "speech" || c.model.encoder != "lstm" || c.model.layers > 1;
           }}};
}

KeyScope attention_dropout(const AttentionCatalogue& catalogue) {
  const auto& drops = catalogue.drops_weights;
  Names kinds;
  std::copy_if(catalogue.names.begin(), catalogue.names.end(), std::back_inserter(kinds),
               [&](const std::string& kind) { return drops && drops(kind); });
  const std::string list = kinds.empty() ? "" : " (" + listed(kinds) + ")";
  return both(transformers(), {{"models whose attention kinds all have dropout of attention weights" + list,
                                "model.attention", [drops](const Config& c) {
                                  return !drops || std::all_of(c.model.attention.begin(),
                                                               c.model.attention.end(), drops);
                                }}});
}

KeyScope cuda_devices() {
  return {{"CUDA devices", "run.device", [](const Config& c) { return c.run.device != "cpu"; }}};
}

KeyScope float32_products() {
  return {{"the precision \"float32\"", "run.precision",
           [](const Config& c) { return c.run.precision == "float32"; }}};
}

KeyScope sgd() {
  return of_optimizers({"sgd"});
}

KeyScope adafactor() {
  return of_optimizers({"adafactor"});
}

KeyScope elementwise_optimizers() {
  return of_optimizers({"radam", "adam", "adamw", "sgd"});
}

KeyScope adaptive_optimizers() {
  return of_optimizers({"radam", "adam", "adamw"});
}

KeyScope clipping() {
  return {{"optimizer.clip_norm above 0", "optimizer.clip_norm",
           [](const Config& c) { return c.optimizer.clip_norm > 0; }}};
}

KeyScope schedules(const Names& kinds) {
  return {{std::string(kinds.size() > 1 ? "the schedules " : "the schedule ") + listed(kinds),
           "schedule.kind", [kinds](const Config& c) { return contains(kinds, c.schedule.kind); }}};
}

KeyScope dropout() {
  return both(layer_dropout(), {{"training with dropout", "model.dropout", [](const Config& c) {
                                   return c.model.dropout > 0 || c.model.attention_dropout > 0;
                                 }}});
}

}  // namespace tapeformer::scope
