// Scopes of config keys. The scope of a key determines the configs in which the key has an effect. This
// header is internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace tapeformer {

// A condition on the value of the config key `key`. `config_description` describes the configs that meet the
// condition, for example "Transformers". The error message for other configs is "belongs to
// CONFIG_DESCRIPTION, and KEY is VALUE".
struct KeyCondition {
  std::string config_description;
  std::string key;
  std::function<bool(const Config&)> is_met;
  // An optional function that returns the reason why a config does not meet the condition. The error message
  // contains this reason in parentheses.
  std::function<std::string(const Config&)> explain = nullptr;
};

// The conditions under which a key has an effect. All conditions must hold. If the list is empty, the key has
// an effect in every config.
using KeyScope = std::vector<KeyCondition>;

KeyScope make_unrestricted_scope();
// Returns all conditions of `a` and of `b`.
KeyScope combine_scopes(KeyScope a, const KeyScope& b);

KeyScope make_non_streaming_scope();  // configs in which data.streams is false

KeyScope make_image_model_scope();
KeyScope make_sequence_model_scope();
KeyScope make_set_model_scope();
KeyScope make_classifier_scope();
KeyScope make_autoregressive_model_scope();
KeyScope make_model_with_positions_scope();
KeyScope make_speech_model_scope();
KeyScope make_transformer_scope();
KeyScope make_causal_option_scope();
KeyScope make_lstm_scope();
KeyScope make_concatenated_position_scope();
KeyScope make_axial_position_scope();
KeyScope make_subsampling_scope();
KeyScope make_layer_dropout_scope();
// Returns the conditions under which model.attention_dropout has an effect.
KeyScope make_attention_dropout_scope(const AttentionCatalogue& catalogue);

KeyScope make_cuda_device_scope();
KeyScope make_float32_product_scope();
KeyScope make_clipping_scope();
KeyScope make_dropout_scope();

}  // namespace tapeformer
