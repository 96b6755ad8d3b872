#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "core/system/utf8.h"
#include "data/files/text_lines.h"
#include "data/text/bpe/bpe_model.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/bpe/merges.h"
#include "data/text/bpe/split.h"
#include "data/text/bpe/tokenizer_json.h"

namespace tapeformer {
namespace {

constexpr char32_t kFirstCombining = 0x300;  // a text of lower characters is in NFC

// Returns a UTF-8 text in the normalization form C (UAX #15).
std::string normalize_to_nfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) throw std::bad_alloc();
  std::string normalized(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);  // NOLINT(cppcoreguidelines-no-malloc): allocated by utf8proc
  return normalized;
}

bool may_change_in_nfc(std::string_view text) {
  constexpr uint8_t kLead = 0xCC;  // first byte of kFirstCombining
  static_assert(kFirstCombining == (kLead & 0x1F) << 6);
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= kLead; });
}

// A search for added tokens in a text.
class AddedTokenFinder {
 public:
  struct Match {
    size_t at = std::string_view::npos;
    size_t size = 0;
    int32_t token = -1;
  };

  void add(std::string text, int32_t token) {
    auto& group = groups_[static_cast<uint8_t>(text[0])];
    group.emplace_back(std::move(text), token);
    // The longest text is the first one, and of equal texts the first added one.
    std::stable_sort(group.begin(), group.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    is_empty_ = false;
  }
  // Returns the first match at or after `at`, and of several matches there the longest.
  Match find(std::string_view text, size_t at) const {
    for (; !is_empty_ && at < text.size(); ++at)
      for (const auto& [content, token] : groups_[static_cast<uint8_t>(text[at])])
        if (text.substr(at, content.size()) == content) return {at, content.size(), token};
    return {};
  }

 private:
  std::array<std::vector<std::pair<std::string, int32_t>>, 256> groups_;  // by the first byte
  bool is_empty_ = true;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeModel model, UnknownCharacters unknown);

  std::string name() const override { return kBpeTokenizerName; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(texts_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string_view get_token_text(int64_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  int64_t unknown_token() const override { return accepts_unknown_ ? model_.unknown_token : -1; }
  std::span<const int32_t> start_tokens() const override { return model_.start_tokens; }
  std::span<const int32_t> stop_tokens() const override { return model_.stop_tokens; }
  bool can_divide(std::string_view text, size_t at) const override {
    return !added_tokens_cross_lines_ && is_bpe_boundary(text, at);
  }
  std::string serialize() const override { return write_tokenizer_json(model_, true); }

 private:
  // The result of a call of encode(), its buffers, and the position of the current part in the text.
  struct Work {
    std::vector<int32_t> tokens, symbols;
    std::unique_ptr<BpePieceCache> cache;
    size_t offset = 0;
    bool is_normalized = false;  // whether the part has other offsets than the text
  };
  // Append the tokens of a part without added tokens, of a part of a normalised text, and of a piece.
  void append_part(std::string_view part, Work& work) const;
  void append_normalized(std::string_view text, Work& work) const;
  void append_piece(std::string_view text, size_t at, size_t end, Work& work) const;
  [[noreturn]] void refuse(std::string_view text, size_t at, const Work& work) const;
  std::unique_ptr<BpePieceCache> take_cache() const;

  BpeModel model_;
  BpeMerges merges_;
  bool accepts_unknown_;
  bool added_tokens_cross_lines_ = false;
  std::array<int32_t, 256> byte_tokens_{};  // -1: not in the vocabulary
  std::vector<std::string> texts_;
  std::unordered_map<std::string_view, int32_t> whole_pieces_;  // views of texts_; empty if merges decide
  AddedTokenFinder added_, added_in_normalized_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<BpePieceCache>> caches_;  // those that no call of encode() uses
};

BpeTokenizer::BpeTokenizer(BpeModel model, UnknownCharacters unknown)
    : model_(std::move(model)),
      merges_(model_.merges),
      accepts_unknown_(unknown == UnknownCharacters::token && model_.unknown_token >= 0) {
  const auto tokens = index_bpe_pieces(model_);
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const auto found = tokens.find(write_byte_character(static_cast<uint8_t>(byte)));
    byte_tokens_[byte] = found == tokens.end() ? -1 : found->second;
  }
  texts_.reserve(model_.pieces.size());
  for (const std::string& piece : model_.pieces)
    texts_.push_back(decode_byte_characters(piece).value_or(piece));
  for (const BpeAddedToken& added : model_.added_tokens) {
    const std::string text =
        added.is_normalized && model_.normalizes_to_nfc ? normalize_to_nfc(added.text) : added.text;
    texts_[static_cast<size_t>(added.id)] = added.text;
    (added.is_normalized ? added_in_normalized_ : added_).add(text, added.id);
    added_tokens_cross_lines_ |= text.find('\n') < text.size() - 1;
  }
  if (accepts_unknown_) texts_[static_cast<size_t>(model_.unknown_token)].clear();
  if (model_.ignores_merges)
    for (size_t token = 0; token < texts_.size(); ++token)
      if (!texts_[token].empty()) whole_pieces_.emplace(texts_[token], static_cast<int32_t>(token));
}

std::unique_ptr<BpePieceCache> BpeTokenizer::take_cache() const {
  const std::lock_guard lock(mutex_);
  if (caches_.empty()) return std::make_unique<BpePieceCache>();
  auto cache = std::move(caches_.back());
  caches_.pop_back();
  return cache;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    throw EncodingError(EncodingProblem::not_encodable, bad,
                        "is not valid UTF-8; the tokenizer \"bytes\" takes any bytes");
  Work work;
  work.cache = take_cache();
  work.tokens.reserve(text.size() / 3);
  for (size_t at = 0; at < text.size();) {
    const AddedTokenFinder::Match match = added_.find(text, at);
    work.offset = at;
    append_part(text.substr(at, match.at - at), work);
    if (match.token >= 0) work.tokens.push_back(match.token);
    at = match.token >= 0 ? match.at + match.size : text.size();
  }
  const std::lock_guard lock(mutex_);
  caches_.push_back(std::move(work.cache));
  return std::move(work.tokens);
}

void BpeTokenizer::append_part(std::string_view part, Work& work) const {
  work.is_normalized = model_.normalizes_to_nfc && may_change_in_nfc(part);
  if (work.is_normalized)
    append_normalized(normalize_to_nfc(part), work);
  else
    append_normalized(part, work);
}

void BpeTokenizer::append_normalized(std::string_view text, Work& work) const {
  for (size_t at = 0; at < text.size();) {
    const AddedTokenFinder::Match match = added_in_normalized_.find(text, at);
    // Pieces do not reach beyond the added token, and white space before it is at the end of a text.
    const std::string_view before = text.substr(0, match.at);
    while (at < before.size()) {
      const size_t end = find_bpe_piece_end(before, at, model_.split);
      append_piece(before, at, end, work);
      at = end;
    }
    if (match.token >= 0) work.tokens.push_back(match.token);
    at = match.token >= 0 ? match.at + match.size : text.size();
  }
}

void BpeTokenizer::append_piece(std::string_view text, size_t at, size_t end, Work& work) const {
  const std::string_view piece = text.substr(at, end - at);
  if (const auto cached = work.cache->find(piece); !cached.empty()) {
    work.tokens.insert(work.tokens.end(), cached.begin(), cached.end());
    return;
  }
  work.symbols.clear();
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    work.symbols.push_back(whole->second);
  } else {
    for (size_t i = at; i < end; ++i) {
      int32_t token = byte_tokens_[static_cast<uint8_t>(text[i])];
      if (token < 0 && !accepts_unknown_) refuse(text, i, work);
      if (token < 0) token = model_.unknown_token;
      work.symbols.push_back(token);
    }
    merges_.apply(work.symbols);
  }
  work.tokens.insert(work.tokens.end(), work.symbols.begin(), work.symbols.end());
  work.cache->add(piece, work.symbols);
}

void BpeTokenizer::refuse(std::string_view text, size_t at, const Work& work) const {
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  const std::string_view rest = text.substr(at);
  const size_t offset = work.offset + (work.is_normalized ? 0 : at);
  const std::string problem = "the character " +
                              describe_character(rest.substr(0, decode_first_utf8_character(rest).bytes)) +
                              " has a byte that is not in the vocabulary of the BPE tokenizer; remove it";
  throw EncodingError(
      model_.unknown_token < 0 ? EncodingProblem::missing_character : EncodingProblem::unknown_character,
      offset, problem);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeModel model, const std::string& source,
                                                    UnknownCharacters unknown) {
  check_bpe_model(model, source);
  return std::make_shared<BpeTokenizer>(std::move(model), unknown);
}

}  // namespace tapeformer
