#include "data/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "core/system/printable.h"
#include "core/system/utf8.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

constexpr int64_t kCodePoints = 0x110000;
constexpr size_t kAsciiCodes = 128;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }
  std::string name() const override { return kByteTokenizerName; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override {
    const auto* const first = reinterpret_cast<const uint8_t*>(text.data());
    return {first, first + text.size()};
  }
  std::string_view get_token_text(int64_t token) const override {
    return {&bytes_.at(static_cast<size_t>(token)), 1};
  }
  std::string serialize() const override { return ""; }

 private:
  std::array<char, 256> bytes_;
};

class CharacterTokenizer final : public Tokenizer {
 public:
  // `characters` are distinct UTF-8 characters.
  explicit CharacterTokenizer(std::string characters) : characters_(std::move(characters)) {
    std::fill(ascii_.begin(), ascii_.end(), -1);
    for (std::string_view rest = characters_; !rest.empty();) {
      const Utf8Character next = decode_first_utf8_character(rest);
      const auto token = static_cast<int32_t>(texts_.size());
      if (next.code_point < kAsciiCodes)
        ascii_[next.code_point] = token;
      else
        others_.emplace(next.code_point, token);
      texts_.push_back(rest.substr(0, next.bytes));
      rest.remove_prefix(next.bytes);
    }
  }
  std::string name() const override { return kCharacterTokenizerName; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(texts_.size()); }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const auto byte = static_cast<uint8_t>(text[at]);
      if (byte < kAsciiCodes && ascii_[byte] >= 0) {
        tokens.push_back(ascii_[byte]);
        ++at;
        continue;
      }
      const Utf8Character next = decode_first_utf8_character(text.substr(at));
      if (next.bytes == 0)
        throw EncodingError(EncodingProblem::not_encodable, at,
                            "is not valid UTF-8; the tokenizer \"bytes\" takes any bytes");
      const auto found = others_.find(next.code_point);
      if (found == others_.end())
        throw EncodingError(EncodingProblem::missing_character, at,
                            "the character " + describe_character(text.substr(at, next.bytes)) +
                                " is not in the vocabulary of the training text");
      tokens.push_back(found->second);
      at += next.bytes;
    }
    return tokens;
  }
  std::string_view get_token_text(int64_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  std::string serialize() const override { return characters_; }

 private:
  std::string characters_;
  std::vector<std::string_view> texts_;  // views of characters_
  std::array<int32_t, kAsciiCodes> ascii_;
  std::map<char32_t, int32_t> others_;
};

// Marks the characters of a text in `used`, which has one element per code point.
void mark_characters(const TextSource& text, std::vector<bool>& used) {
  constexpr int64_t kLongest = 4;  // maximum number of bytes of a UTF-8 character
  std::array<bool, kAsciiCodes> ascii{};
  for (int64_t at = 0; at < text.size();) {
    const std::string_view rest = text.view(at, text.size());
    size_t done = 0;
    while (done < rest.size()) {
      const auto byte = static_cast<uint8_t>(rest[done]);
      if (byte < kAsciiCodes) {
        ascii[byte] = true;
        ++done;
        continue;
      }
      const Utf8Character next = decode_first_utf8_character(rest.substr(done, kLongest));
      if (next.bytes == 0)
        throw DataError(text.location(at + static_cast<int64_t>(done)) +
                        " is not valid UTF-8; the tokenizer \"bytes\" takes any bytes");
      used[next.code_point] = true;
      done += next.bytes;
    }
    at += static_cast<int64_t>(done);
  }
  for (size_t i = 0; i < kAsciiCodes; ++i)
    if (ascii[i]) used[i] = true;
}

std::shared_ptr<const Tokenizer> restore_characters(const std::string& data, const std::string& source) {
  std::vector<char32_t> codes;
  for (std::string_view rest = data; !rest.empty();) {
    const Utf8Character next = decode_first_utf8_character(rest);
    if (next.bytes == 0) throw DataError(source + ": the characters of the tokenizer are not valid UTF-8");
    codes.push_back(next.code_point);
    rest.remove_prefix(next.bytes);
  }
  if (codes.empty()) throw DataError(source + ": the tokenizer has no characters");
  if (std::adjacent_find(codes.begin(), codes.end(), std::greater_equal<>()) != codes.end())
    throw DataError(source + ": the characters of the tokenizer are not in ascending order");
  return std::make_shared<CharacterTokenizer>(data);
}

}  // namespace

std::string Tokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t token : tokens)
    text += token == unknown_token() ? kReplacementText : get_token_text(token);
  return text;
}

std::shared_ptr<const Tokenizer> make_byte_tokenizer() {
  return std::make_shared<ByteTokenizer>();
}

std::shared_ptr<const Tokenizer> make_character_tokenizer(const std::vector<const TextSource*>& texts) {
  std::vector<bool> used(kCodePoints);
  for (const TextSource* text : texts) mark_characters(*text, used);
  std::string characters;
  for (size_t code = 0; code < used.size(); ++code)
    if (used[code]) append_utf8_character(static_cast<char32_t>(code), characters);
  return std::make_shared<CharacterTokenizer>(characters);
}

std::shared_ptr<const Tokenizer> deserialize_tokenizer(const std::string& name, const std::string& data,
                                                       const std::string& source, UnknownCharacters unknown) {
  if (name == kByteTokenizerName) return make_byte_tokenizer();
  if (name == kCharacterTokenizerName) return restore_characters(data, source);
  if (name == kSentencePieceTokenizerName) return make_sentencepiece_tokenizer(data, source, unknown);
  if (name == kBpeTokenizerName) return make_bpe_tokenizer(data, source, unknown);
  throw DataError(source + ": unknown tokenizer \"" + name + "\"");
}

std::string describe_character(std::string_view character) {
  char code[16];
  std::snprintf(code, sizeof code, "U+%04X",
                static_cast<unsigned>(decode_first_utf8_character(character).code_point));
  return concat_text("\"", escape_line(character), "\" (", code, ")");
}

}  // namespace tapeformer
