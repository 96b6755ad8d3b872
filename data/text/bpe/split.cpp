#include "data/text/bpe/split.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/system/utf8.h"

namespace tapeformer {
namespace {

enum class Class : uint8_t { letter, number, mark, space, line_end, other };

struct Character {
  Class kind = Class::other;
  size_t bytes = 0;  // 0 at the end of the text
};

constexpr size_t kAsciiSize = 128;

constexpr auto kAscii = [] {
  std::array<Class, kAsciiSize> table{};
  for (size_t c = 0; c < kAsciiSize; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_space = c == ' ' || c == '\t' || c == '\v' || c == '\f';
    table[c] = is_letter                ? Class::letter
               : c >= '0' && c <= '9'   ? Class::number
               : c == '\n' || c == '\r' ? Class::line_end
               : is_space               ? Class::space
                                        : Class::other;
  }
  return table;
}();

// Returns the class of a character outside of ASCII. White space is the property White_Space.
Class find_class(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Class::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Class::number;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return Class::mark;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return Class::space;
    default:
      return c == 0x85 ? Class::space : Class::other;
  }
}

// A text, and functions that find the end of a run of characters. All offsets are in bytes.
class Scanner {
 public:
  Scanner(std::string_view text, BpeSplit split)
      : text_(text), joins_marks_(split == BpeSplit::qwen35), isolates_numbers_(split == BpeSplit::smollm) {}

  Character read(size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < kAsciiSize) return {kAscii[byte], 1};
    const Utf8Character next = decode_first_utf8_character(text_.substr(at, 4));
    return {find_class(next.code_point), std::max<size_t>(next.bytes, 1)};
  }
  bool is_letter(Character c) const {
    return c.bytes > 0 && (c.kind == Class::letter || (c.kind == Class::mark && joins_marks_));
  }
  static bool is_number(Character c) { return c.bytes > 0 && c.kind == Class::number; }
  static bool is_space(Character c) {
    return c.bytes > 0 && (c.kind == Class::space || c.kind == Class::line_end);
  }
  bool is_other(Character c) const {
    return c.bytes > 0 && (c.kind == Class::other || (c.kind == Class::mark && !joins_marks_));
  }

  template <class Condition>
  size_t skip(size_t at, Condition condition) const {
    for (Character c = read(at); condition(c); c = read(at)) at += c.bytes;
    return at;
  }
  size_t skip_letters(size_t at) const {
    return skip(at, [&](Character c) { return is_letter(c); });
  }
  size_t skip_others(size_t at) const {
    return skip(at, [&](Character c) { return is_other(c); });
  }

  // Returns the end of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at`.
  size_t skip_contraction(size_t at, bool ignores_case) const {
    if (text_[at] != '\'' || at + 1 >= text_.size()) return at;
    constexpr std::string_view kLongS = "\xC5\xBF";  // U+017F, whose simple case folding is "s"
    if (ignores_case && text_.substr(at + 1, kLongS.size()) == kLongS) return at + 1 + kLongS.size();
    const auto letter = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return ignores_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(at + 1), second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    const bool is_pair = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return is_pair ? at + 3 : at;
  }

  // Returns the end of \s+(?!\S)|\s+ at the white space at `at`, whose run ends at `end`.
  size_t skip_spaces(size_t at, size_t end) const {
    const bool ends_text = end == text_.size() || (isolates_numbers_ && is_number(read(end)));
    if (ends_text) return end;
    size_t last = end - 1;
    while (last > at && (static_cast<uint8_t>(text_[last]) & 0xC0) == 0x80) --last;
    return last > at ? last : end;
  }
  size_t find_space_end(size_t at) const { return skip(at, is_space); }

  // '(s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  size_t find_gpt2_end(size_t at) const {
    if (const size_t end = skip_contraction(at, false); end > at) return end;
    const bool has_space = text_[at] == ' ' && at + 1 < text_.size();
    const size_t start = at + has_space;
    const Character first = read(start);
    if (is_letter(first)) return skip_letters(start);
    if (is_number(first) && isolates_numbers_) return has_space ? start : start + first.bytes;
    if (is_number(first)) return skip(start, is_number);
    if (is_other(first)) return skip_others(start);
    return skip_spaces(at, find_space_end(at));
  }

  // (?i:'(s|t|re|ve|m|ll|d))|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t find_word_end(size_t at, int max_digits) const {
    if (const size_t end = skip_contraction(at, true); end > at) return end;
    const Character first = read(at);
    if (is_letter(first)) return skip_letters(at);
    if (first.kind == Class::number) {
      size_t end = at;
      for (int i = 0; i < max_digits && is_number(read(end)); ++i) end += read(end).bytes;
      return end;
    }
    const Character second = read(at + first.bytes);
    if (first.kind != Class::line_end && is_letter(second)) return skip_letters(at + first.bytes);
    if (is_other(first) || (text_[at] == ' ' && is_other(second)))
      return skip(skip_others(at + first.bytes),
                  [](Character c) { return c.bytes > 0 && c.kind == Class::line_end; });
    const size_t end = find_space_end(at);
    const size_t line_end = text_.substr(at, end - at).find_last_of("\r\n");
    if (line_end != std::string_view::npos) return at + line_end + 1;
    return skip_spaces(at, end);
  }

 private:
  std::string_view text_;
  bool joins_marks_, isolates_numbers_;
};

}  // namespace

size_t find_bpe_piece_end(std::string_view text, size_t at, BpeSplit split) {
  const Scanner scanner(text, split);
  switch (split) {
    case BpeSplit::gpt2:
    case BpeSplit::smollm:
      return scanner.find_gpt2_end(at);
    case BpeSplit::llama3:
      return scanner.find_word_end(at, 3);
    case BpeSplit::qwen2:
    case BpeSplit::qwen35:
      break;
  }
  return scanner.find_word_end(at, 1);
}

bool is_bpe_boundary(std::string_view text, size_t at) {
  if (at < 2 || at >= text.size() || text[at - 1] != '\n') return false;
  size_t before = at - 2;
  while (before > 0 && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
  const Scanner scanner(text, BpeSplit::gpt2);
  return !Scanner::is_space(scanner.read(before)) && scanner.is_letter(scanner.read(at));
}

}  // namespace tapeformer
