// The parts of a byte-level BPE tokenizer (Sennrich et al. 2016; Radford et al. 2019, section 2.2).
//
// A text is divided into pieces by a regular expression. The bytes of a piece are symbols, and the adjacent
// pair of symbols with the first merge in the list is joined until no pair has a merge.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/text/tokenizer.h"

namespace tapeformer {

// The regular expressions that divide a text into pieces. They are in split_pattern.cpp.
enum class BpeSplit {
  gpt2,    // GPT-2 and GPT-NeoX
  smollm,  // each digit is a piece, and GPT-2's expression divides the text between digits
  qwen2,   // each digit is a piece; a word can begin with a punctuation mark
  llama3,  // as qwen2, but up to three digits are a piece
  qwen35,  // as qwen2, but combining marks belong to words
};

// A token whose text is cut out of a text before the text is divided into pieces.
struct BpeAddedToken {
  int32_t id = 0;
  std::string text;
  bool is_special = false;     // whether the token controls a model, such as the end of a text
  bool is_normalized = false;  // whether the token is searched in the normalised text
};

struct BpeModel {
  // The pieces in the order of their tokens. Each byte of a piece is a character of the byte alphabet; see
  // byte_alphabet.h. The piece of an unused token and of an added token outside of the vocabulary is empty.
  std::vector<std::string> pieces = {};
  std::vector<std::array<int32_t, 3>> merges =
      {};  // the tokens of the left and the right symbol, and of both
  std::vector<BpeAddedToken> added_tokens = {};
  BpeSplit split = BpeSplit::gpt2;
  bool normalizes_to_nfc = false;
  bool ignores_merges = false;             // whether a piece that is a token needs no merges
  int32_t unknown_token = -1;              // stands for bytes that are not in the vocabulary; -1: none
  std::vector<int32_t> start_tokens = {};  // precede each text
  std::vector<int32_t> stop_tokens = {};   // end a generated text
};

// Returns the tokens of the pieces that are not empty. The keys are views of model.pieces.
std::unordered_map<std::string_view, int32_t> index_bpe_pieces(const BpeModel& model);

// Sets model.merges from pairs of pieces, in the order of their ranks. Throws DataError with `source` if a
// piece or the result of a merge is not in model.pieces.
void set_bpe_merges(BpeModel& model, const std::vector<std::pair<std::string, std::string>>& pairs,
                    const std::string& source);

// Splits a merge of the form "LEFT RIGHT". Throws DataError with `source` if the text has another form.
std::pair<std::string, std::string> parse_bpe_merge(std::string_view text, const std::string& source);

// Returns the special tokens with the names of ends of texts and turns, such as "<|endoftext|>".
std::vector<int32_t> find_bpe_stop_tokens(const std::vector<BpeAddedToken>& added_tokens);

// Throws DataError with `source` if a token of the model is not below the number of pieces, if an added token
// is empty or not valid UTF-8, if the unknown token is unused, or if there are more than 16 start tokens.
void check_bpe_model(const BpeModel& model, const std::string& source);

// Returns the first bytes of a text in quotation marks, for error messages.
std::string quote_bpe_text(std::string_view text, size_t max_bytes = 80);

// Returns the tokenizer "bpe". If a byte is not in the vocabulary and `unknown` is UnknownCharacters::refuse,
// encode() throws EncodingError. Throws the errors of check_bpe_model().
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeModel model, const std::string& source,
                                                    UnknownCharacters unknown = UnknownCharacters::refuse);

}  // namespace tapeformer
