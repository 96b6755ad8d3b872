// Options of small models in the forms that backward() distinguishes.
#pragma once

#include <map>
#include <string>

#include "tests/models/small_model.h"

namespace tapeformer::test {

// Returns small models that run their layers and their loss in different forms.
inline std::map<std::string, AutoregressiveModelOptions> list_model_forms() {
  std::map<std::string, AutoregressiveModelOptions> forms;
  const AutoregressiveModelOptions plain = small_options("softmax", OutputHead::categorical);
  forms["plain"] = forms["chunked"] = forms["recomputed"] = forms["tied"] = forms["modern"] = plain;
  forms["chunked"].encoder.feedforward_chunks = forms["chunked"].loss_chunks = 3;
  forms["recomputed"].encoder.recompute = true;
  forms["recomputed"].encoder.feedforward_chunks = 2;
  forms["reversible"] = reformer_options("softmax", OutputHead::categorical);
  forms["reversible"].encoder.layers = 3;
  AutoregressiveModelOptions& tied = forms["tied"];
  tied.position_kind = PositionKind::none;
  tied.tied_embeddings = true;
  tied.loss_chunks = 2;
  AutoregressiveModelOptions& modern = forms["modern"];
  modern.encoder.pre_norm = modern.encoder.gated_feedforward = modern.encoder.rotary = true;
  modern.encoder.norm.kind = NormKind::rms;
  modern.encoder.activation = Activation::silu;
  modern.encoder.feedforward_chunks = 2;
  modern.encoder.kv_heads = 1;
  modern.position_kind = PositionKind::none;
  return forms;
}

}  // namespace tapeformer::test
