// Parts of a SentencePiece model, the protocol buffer of sentencepiece_model.proto, that the library does not
// show, and settings that the format of Hugging Face has beside the model. Internal to data/text and to
// train/pretrained.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

// Settings of a tokenizer that are stored behind its model, in a field that the library ignores.
struct PieceModelSettings {
  std::vector<int32_t> start_tokens = {};  // precede each text
  std::vector<int32_t> stop_tokens = {};   // end a generated text
  int64_t vocabulary_size = 0;             // if it exceeds the number of pieces, there are unused tokens
  // A space precedes each text. The model itself adds a space before each part of a text that it encodes.
  bool prefixes_texts = false;
};

struct PieceModel {
  std::string model;  // without settings
  PieceModelSettings settings = {};
  bool adds_space = true;      // before each encoded text
  bool removes_spaces = true;  // at the ends of a text, and repeated ones
};

// Reads a model with or without settings. Throws DataError, which begins with `source`, if the fields of the
// protocol buffer are damaged.
PieceModel parse_piece_model(std::string_view text, const std::string& source);
// Returns the model, followed by the settings.
std::string write_piece_model(const PieceModel& model);
// Returns a model that adds no space before the texts.
std::string remove_added_space(const std::string& model);

}  // namespace tapeformer
