#include "data/translation/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/system/utf8.h"

namespace tapeformer {
namespace {

constexpr char32_t kReplacementCharacter = 0xFFFD, kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool has_category(char32_t c, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = category_of(c);
  return category >= first && category <= last;
}

char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

// Returns the property Case_Ignorable. utf8proc lacks the values MidLetter, MidNumLet and Single_Quote of the
// property Word_Break.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWordBreaks =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kWordBreaks.find(c) != std::u32string_view::npos;
  }
}

// Returns the property Cased of a character that is not Case_Ignorable. utf8proc lacks the property
// Other_Uppercase of squared and circled letters, and Other_Lowercase of ordinal indicators.
bool is_cased(char32_t c) {
  const bool is_enclosed_letter =
      (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return has_category(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT) || to_lower(c) != c ||
         to_upper(c) != c || c == 0xAA || c == 0xBA || is_enclosed_letter;
}

bool is_final_sigma(std::u32string_view text, size_t at) {
  const std::u32string_view before = text.substr(0, at), after = text.substr(at + 1);
  const auto previous = std::find_if_not(before.rbegin(), before.rend(), is_case_ignorable);
  const auto next = std::find_if_not(after.begin(), after.end(), is_case_ignorable);
  return previous != before.rend() && is_cased(*previous) && (next == after.end() || !is_cased(*next));
}

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = decode_first_utf8_character(text);
    result += character.bytes == 0 ? kReplacementCharacter : character.code_point;
    text.remove_prefix(std::max<size_t>(character.bytes, 1));
  }
  return result;
}

std::string encode_utf8(std::u32string_view text) {
  std::string result;
  for (const char32_t c : text) append_utf8_character(c, result);
  return result;
}

bool is_unicode_space(char32_t c) {
  const bool is_separator_control = (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85;
  return is_separator_control || has_category(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_unicode_number(char32_t c) {
  return has_category(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_unicode_punctuation(char32_t c) {
  return has_category(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_unicode_symbol(char32_t c) {
  return has_category(c, UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO);
}

std::u32string to_lower_case(std::u32string_view text) {
  std::u32string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kCapitalSigma)
      lower += is_final_sigma(text, i) ? kFinalSigma : kSigma;
    else if (text[i] == 0x130)
      lower += U"i\u0307";
    else
      lower += to_lower(text[i]);
  }
  return lower;
}

}  // namespace tapeformer
