#include "data/text/piece_model.h"

#include <cstring>
#include <functional>

#include "core/base/errors.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

// Numbers of fields of sentencepiece_model.proto, and of the settings, in the range for extensions.
enum : uint64_t { kNormalizer = 3, kDenormalizer = 5, kSettings = 4001 };
enum : uint64_t { kCharacterMap = 2, kAddsSpace = 3, kRemovesSpaces = 4 };
enum : uint64_t { kStart = 1, kStop = 2, kVocabulary = 3, kPrefix = 4 };
enum : uint64_t { kVarint = 0, kFixed64 = 1, kText = 2, kFixed32 = 5 };

// The fields of a message in the format of protocol buffers.
class FieldReader {
 public:
  FieldReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  struct Field {
    uint64_t number, value;  // `value`: of a number
    std::string_view text;   // of a text or a message
    size_t start;            // of the field in the message
  };
  void visit(const std::function<void(const Field&)>& f) {
    while (at_ < text_.size()) {
      Field field{0, 0, {}, at_};
      const uint64_t tag = read_varint();
      field.number = tag >> 3;
      switch (tag & 7) {
        case kVarint:
          field.value = read_varint();
          break;
        case kFixed64:
          take(8);
          break;
        case kText:
          field.text = take(read_varint());
          break;
        case kFixed32:
          take(4);
          break;
        default:
          fail();
      }
      f(field);
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(source_ + ": is not a SentencePiece model or is damaged");
  }
  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= text_.size()) fail();
      const auto byte = static_cast<uint8_t>(text_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(uint64_t size) {
    if (size > text_.size() - at_) fail();
    const std::string_view part = text_.substr(at_, size);
    at_ += size;
    return part;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

// A table of normalised texts, which the library reads without checks of its bounds: the size of a trie in
// bytes, the trie, and texts that end with NUL bytes. The trie is a double array of darts-clone, whose keys
// are texts and whose values are positions of normalised texts.
class CharacterMap {
 public:
  explicit CharacterMap(std::string_view table) {
    uint32_t bytes = 0;
    if (table.size() < sizeof bytes) return;
    std::memcpy(&bytes, table.data(), sizeof bytes);
    table.remove_prefix(sizeof bytes);
    if (bytes >= table.size()) return;
    units_.resize(bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), table.data(), units_.size() * sizeof(uint32_t));
    texts_ = table.substr(bytes);
  }
  // Returns whether the library stays within the table for all texts.
  bool is_valid() {
    return !units_.empty() && texts_.back() == '\0' && find_invalid_utf8(texts_) == std::string_view::npos &&
           is_node_valid(0, 0, 0);
  }

 private:
  // Checks a node and the nodes below it. `length` and `ends` are the bytes before the node, and the number
  // of keys among their prefixes.
  bool is_node_valid(size_t node, int length, int ends) {
    constexpr int kMaxLength = 256, kMaxEnds = 32;  // the library has space for 32 keys
    constexpr int kMaxVisits = 1 << 20;
    const uint32_t unit = units_[node];
    const size_t base = node ^ ((unit >> 10) << ((unit & (1U << 9)) >> 6));
    if (++visits_ > kMaxVisits || length > kMaxLength || (base | 0xFF) >= units_.size()) return false;
    if ((unit >> 8 & 1) != 0) {
      const size_t text = units_[base] & 0x7FFFFFFF;
      if (++ends > kMaxEnds || text >= texts_.size() || (texts_[text] & 0xC0) == 0x80) return false;
    }
    for (uint32_t byte = 0; byte < 256; ++byte)
      if ((units_[base ^ byte] & 0x800000FF) == byte && !is_node_valid(base ^ byte, length + 1, ends))
        return false;
    return true;
  }

  std::vector<uint32_t> units_;
  std::string_view texts_;
  int visits_ = 0;
};

std::string write_varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
std::string write_number(uint64_t field, uint64_t value) {
  return write_varint(field << 3 | kVarint) + write_varint(value);
}
std::string write_message(uint64_t field, const std::string& content) {
  return write_varint(field << 3 | kText) + write_varint(content.size()) + content;
}

PieceModelSettings parse_settings(std::string_view text, const std::string& source) {
  PieceModelSettings settings;
  constexpr uint64_t kMaxToken = 1 << 24;
  FieldReader(text, source).visit([&](const FieldReader::Field& field) {
    if (field.value > kMaxToken) throw DataError(source + ": is damaged");
    if (field.number == kStart) settings.start_tokens.push_back(static_cast<int32_t>(field.value));
    if (field.number == kStop) settings.stop_tokens.push_back(static_cast<int32_t>(field.value));
    if (field.number == kVocabulary) settings.vocabulary_size = static_cast<int64_t>(field.value);
    if (field.number == kPrefix) settings.prefixes_texts = field.value != 0;
  });
  return settings;
}

}  // namespace

PieceModel parse_piece_model(std::string_view text, const std::string& source) {
  PieceModel result;
  size_t end = text.size();
  FieldReader(text, source).visit([&](const FieldReader::Field& field) {
    if (field.number == kSettings) {
      result.settings = parse_settings(field.text, source);
      end = field.start;
    }
    if (field.number != kNormalizer && field.number != kDenormalizer) return;
    FieldReader(field.text, source).visit([&](const FieldReader::Field& part) {
      if (part.number == kCharacterMap && !part.text.empty() && !CharacterMap(part.text).is_valid())
        throw DataError(source + ": the table of normalised characters is damaged");
      if (field.number == kDenormalizer) return;
      if (part.number == kAddsSpace) result.adds_space = part.value != 0;
      if (part.number == kRemovesSpaces) result.removes_spaces = part.value != 0;
    });
  });
  result.model = text.substr(0, end);
  return result;
}

std::string write_piece_model(const PieceModel& model) {
  const PieceModelSettings& s = model.settings;
  std::string settings;
  for (const int32_t token : s.start_tokens) settings += write_number(kStart, static_cast<uint64_t>(token));
  for (const int32_t token : s.stop_tokens) settings += write_number(kStop, static_cast<uint64_t>(token));
  if (s.vocabulary_size > 0) settings += write_number(kVocabulary, static_cast<uint64_t>(s.vocabulary_size));
  if (s.prefixes_texts) settings += write_number(kPrefix, 1);
  return settings.empty() ? model.model : model.model + write_message(kSettings, settings);
}

// The last value of a field counts, also in another message with the same number.
std::string remove_added_space(const std::string& model) {
  return model + write_message(kNormalizer, write_number(kAddsSpace, 0));
}

}  // namespace tapeformer
