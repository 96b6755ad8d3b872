// Unknown tokens in texts for people: their text is U+FFFD, and commands count them. Also tokens that occur
// in no text.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/system/log.h"
#include "core/system/utf8.h"
#include "data/text/tokenizer.h"

namespace tapeformer {

// Returns the text of a token, or U+FFFD for the unknown token.
inline std::string_view get_shown_text(const Tokenizer& tokenizer, int64_t token) {
  return token == tokenizer.unknown_token() ? kReplacementText : tokenizer.get_token_text(token);
}

// Returns the number of unknown tokens in a container of tokens.
template <class Tokens>
int64_t count_unknown(const Tokenizer& tokenizer, const Tokens& tokens) {
  return std::count(tokens.begin(), tokens.end(), tokenizer.unknown_token());
}

// Returns the tokens without a text that occur in no text, such as those with which an embedding is padded.
inline std::vector<int64_t> list_tokens_without_text(const Tokenizer& tokenizer) {
  std::vector<int64_t> tokens;
  const auto stops = tokenizer.stop_tokens();
  for (int64_t token = 0; token < tokenizer.vocabulary_size(); ++token)
    if (tokenizer.get_token_text(token).empty() && token != tokenizer.unknown_token() &&
        std::find(stops.begin(), stops.end(), token) == stops.end())
      tokens.push_back(token);
  return tokens;
}

// Log a warning with the number of unknown tokens that were read from a text, such as "the prompt", or that a
// model has written, unless the number is 0.
inline void warn_of_unknown_characters(int64_t count, const char* text) {
  if (count > 0)
    log_warning("unknown tokens in ", text, ", for characters that are not in the vocabulary: ", count);
}
inline void warn_of_unknown_text(int64_t count, const char* text) {
  if (count > 0) log_warning("unknown tokens in ", text, ", whose text is U+FFFD: ", count);
}

}  // namespace tapeformer
