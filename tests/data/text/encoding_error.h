// The error of a text that a tokenizer cannot encode, for tests.
#pragma once

#include <stdexcept>
#include <string>

#include "data/text/tokenizer.h"

namespace tapeformer::test {

inline EncodingError encoding_error_of(const Tokenizer& tokenizer, const std::string& text) {
  try {
    tokenizer.encode(text);
  } catch (const EncodingError& error) {
    return error;
  }
  throw std::runtime_error("the tokenizer has encoded the text");
}

}  // namespace tapeformer::test
