// Tokenizers, which convert texts to sequences of tokens and back. A tokenizer is immutable and thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/errors.h"
#include "data/text/text_source.h"

namespace tapeformer {

enum class EncodingProblem {
  not_encodable,      // for example, the text is not UTF-8
  missing_character,  // a character is not in the vocabulary, which has no token for unknown characters
  unknown_character,  // the vocabulary has such a token, and UnknownCharacters::refuse excludes it
};

// Thrown if a tokenizer cannot encode a text. The message describes the problem, and `offset` is the position
// of the problem in the text.
class EncodingError : public DataError {
 public:
  EncodingError(EncodingProblem kind, size_t byte_offset, const std::string& text)
      : DataError(text), problem(kind), offset(byte_offset) {}
  EncodingProblem problem;
  size_t offset;  // bytes from the start of the text
};

// Encoding of characters that are not in the vocabulary of a SentencePiece model or a BPE tokenizer.
enum class UnknownCharacters {
  refuse,  // throw EncodingError
  token,   // use the unknown token, which stands for one or more characters
};

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;         // "bytes", "characters", "sentencepiece" or "bpe"
  virtual int64_t vocabulary_size() const = 0;  // number of different tokens
  // Returns the tokens of a text. Throws EncodingError for characters that are not in the vocabulary.
  // Tokenizers other than "bytes" also throw EncodingError for invalid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Returns the tokens of a part of a text that is not its beginning.
  virtual std::vector<int32_t> encode_rest(std::string_view text) const { return encode(text); }
  // Returns the text of a token as bytes. Control tokens and the unknown token have an empty text.
  virtual std::string_view get_token_text(int64_t token) const = 0;
  // Returns the token of unknown characters, whose text is empty, or -1 if the tokenizer has none.
  virtual int64_t unknown_token() const { return -1; }
  // Returns the data for deserialize_tokenizer(): an empty text for "bytes", the characters in the order of
  // their tokens for "characters", the model for "sentencepiece", and a tokenizer.json for "bpe".
  virtual std::string serialize() const = 0;
  // Returns the tokens that a model expects before a text, and the tokens that end a generated text. Most
  // tokenizers have none.
  virtual std::span<const int32_t> start_tokens() const { return {}; }
  virtual std::span<const int32_t> stop_tokens() const { return {}; }
  // Returns whether the tokens of a text are those of its first `at` bytes and those of the rest. The text
  // has a line end before `at`.
  virtual bool can_divide(std::string_view /*text*/, size_t /*at*/) const { return true; }
  // Returns the text of all tokens, in which U+FFFD stands for the unknown token.
  std::string decode(std::span<const int64_t> tokens) const;
};

inline constexpr char kByteTokenizerName[] = "bytes", kCharacterTokenizerName[] = "characters",
                      kSentencePieceTokenizerName[] = "sentencepiece", kBpeTokenizerName[] = "bpe";

std::shared_ptr<const Tokenizer> make_byte_tokenizer();

// Returns a tokenizer whose vocabulary consists of the characters of all texts, in the order of their Unicode
// code points. Throws DataError for invalid UTF-8, with the file and the byte offset.
std::shared_ptr<const Tokenizer> make_character_tokenizer(const std::vector<const TextSource*>& texts);

// Returns a tokenizer that uses a SentencePiece model. `model` is the serialized model, and `source` is the
// name of the model in error messages. The model may contain settings (data/text/piece_model.h). Throws
// DataError if the model is damaged, and ConfigError in a build without SentencePiece.
std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(
    const std::string& model, const std::string& source,
    UnknownCharacters unknown = UnknownCharacters::refuse);

// The number of tokens of a SentencePiece model, and its tokens for the start and the end of a text, or -1.
struct PieceTokens {
  int64_t count = 0;
  int32_t start = -1, end = -1;
};
// Throws the errors of make_sentencepiece_tokenizer().
PieceTokens find_piece_tokens(const std::string& model, const std::string& source);

// Trains a SentencePiece unigram model and returns its tokenizer. The model encodes rare characters as bytes
// and does not normalise the text: decoded tokens equal the text. `vocabulary` is the number of tokens. Logs
// the elapsed time once in `log_interval`, because the training of a large text takes minutes. Throws
// DataError for invalid UTF-8.
// Throws ConfigError if SentencePiece cannot train a vocabulary of this size, and in a build without
// SentencePiece.
std::shared_ptr<const Tokenizer> train_sentencepiece(
    const TextSource& text, int64_t vocabulary, uint64_t seed,
    std::chrono::milliseconds log_interval = std::chrono::seconds(10));

// Returns a byte-level BPE tokenizer from the text of a tokenizer.json; see data/text/bpe/tokenizer_json.h.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(const std::string& json, const std::string& source,
                                                    UnknownCharacters unknown = UnknownCharacters::refuse);

// Restores the tokenizer `name` from `data`, which is a result of Tokenizer::serialize(). `source` is the
// name of the data in error messages. Throws DataError if the data is damaged, and ConfigError in a build
// without SentencePiece.
std::shared_ptr<const Tokenizer> deserialize_tokenizer(const std::string& name, const std::string& data,
                                                       const std::string& source,
                                                       UnknownCharacters unknown = UnknownCharacters::refuse);

// Returns a description of a UTF-8 character, such as `"é" (U+00E9)`.
std::string describe_character(std::string_view character);

}  // namespace tapeformer
