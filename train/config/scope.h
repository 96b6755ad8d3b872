// Scopes of config keys: the configs in which a key has an effect, and the commands that use the key. Setting
// a key outside of its scope is an error whose message names the scope. Internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace tapeformer {

// A condition on the value of `key`. `owner` names the configs for which the condition holds. If the
// condition does not hold, the error message contains "belongs to OWNER, and KEY is VALUE".
struct KeyCondition {
  std::string owner;
  std::string key;
  std::function<bool(const Config&)> holds;
};

// The conditions under which a key has an effect. All conditions must hold. If the list is empty, the key has
// an effect in every config.
using KeyScope = std::vector<KeyCondition>;

// The group of settings to which a key belongs. Commands that use a trained model ignore the keys of some
// roles.
enum class KeyRole {
  process,   // settings of the process: name, device, threads and seed
  model,     // settings of the model and its input
  features,  // settings of the features of speech
  data,      // settings of the data set
  training,
};

namespace scope {

KeyScope every_config();
// Returns all conditions of `a` and of `b`.
KeyScope both(KeyScope a, const KeyScope& b);

KeyScope data_paths();     // data sets that take data.path
KeyScope known_images();   // data sets of images of a known size
KeyScope image_folders();  // the data set "images": folders with pictures of the user
KeyScope color_images();   // data sets of images that can be RGB
KeyScope symbols();
KeyScope generated_sequences();
KeyScope listops();
KeyScope has_varied_lengths();  // generated data sets with data.min_length
KeyScope mixtures_of_gaussians();
KeyScope speech_or_known_images();
KeyScope texts();
KeyScope independent_examples();  // data sets whose batches do not continue the previous batches
KeyScope shared_splits();         // data sets whose validation and test splits are shares of the data
KeyScope sentencepiece();
KeyScope trained_sentencepiece();
KeyScope speech();
KeyScope recordings();  // data sets of speech whose features are computed from audio
KeyScope parts();       // speech corpora with one folder for each part
KeyScope lexicon();     // data sets of speech whose labels may be words
KeyScope unknown_words();
KeyScope timit();
KeyScope normalised_features();
KeyScope apply_spec_augment();

KeyScope image_models();
KeyScope sequence_models();
KeyScope set_models();
KeyScope classifiers();
KeyScope autoregressive_models();
KeyScope models_with_positions();
KeyScope speech_models();
KeyScope transformers();
KeyScope causal_choice();
KeyScope lstms();
KeyScope concatenated_positions();
KeyScope axial_positions();
KeyScope subsampled();
KeyScope layer_dropout();
// Returns the conditions under which model.attention_dropout has an effect.
KeyScope attention_dropout(const AttentionCatalogue& catalogue);

KeyScope cuda_devices();
KeyScope float32_products();
KeyScope sgd();
KeyScope adafactor();
KeyScope adaptive_optimizers();
KeyScope elementwise_optimizers();  // optimizers that update each element separately
KeyScope clipping();
KeyScope schedules(const std::vector<std::string>& kinds);
KeyScope dropout();

}  // namespace scope
}  // namespace tapeformer
