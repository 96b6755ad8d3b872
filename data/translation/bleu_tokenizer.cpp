#include "data/translation/bleu_tokenizer.h"

#include <algorithm>
#include <stdexcept>

#include "core/base/errors.h"
#include "data/translation/unicode.h"

namespace tapeformer {
namespace {

bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

bool is_period_or_comma(char32_t c) {
  return c == '.' || c == ',';
}

// Returns whether 13a always separates the character: a space, or ASCII punctuation except ' , - and .
bool is_separated_by_13a(char32_t c) {
  return (c >= 0x20 && c <= 0x26) || (c >= 0x28 && c <= 0x2B) || c == 0x2F || (c >= 0x3A && c <= 0x40) ||
         (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

std::u32string replace_all(std::u32string_view text, std::u32string_view from, std::u32string_view to) {
  std::u32string result;
  for (size_t at; (at = text.find(from)) != std::u32string_view::npos; text.remove_prefix(at + from.size()))
    (result += text.substr(0, at)) += to;
  return result += text;
}

// Puts spaces around each character for which `is_separated` is true.
template <class Predicate>
std::u32string separate(std::u32string_view text, const Predicate& is_separated) {
  std::u32string result;
  for (const char32_t c : text)
    if (is_separated(c))
      ((result += U' ') += c) += U' ';
    else
      result += c;
  return result;
}

enum class PairSide { first, second };

// Finds pairs of adjacent characters for which both predicates are true, from left to right and without
// overlap. Puts spaces around the character `separated` of each pair.
template <class First, class Second>
std::u32string separate_in_pairs(std::u32string_view text, const First& is_first, const Second& is_second,
                                 PairSide separated) {
  std::u32string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !is_first(text[i]) || !is_second(text[i + 1])) {
      result += text[i];
      continue;
    }
    if (separated == PairSide::first) result += U' ';
    ((result += text[i]) += U' ') += text[i + 1];
    if (separated == PairSide::second) result += U' ';
    ++i;
  }
  return result;
}

std::u32string apply_13a(std::u32string text) {
  constexpr std::pair<std::u32string_view, std::u32string_view> kReplacements[] = {
      {U"<skipped>", U""}, {U"-\n", U""},   {U"\n", U" "},  {U"&quot;", U"\""},
      {U"&amp;", U"&"},    {U"&lt;", U"<"}, {U"&gt;", U">"}};
  for (const auto& [from, to] : kReplacements) text = replace_all(text, from, to);
  text = separate(U" " + text + U" ", is_separated_by_13a);
  const auto is_no_digit = [](char32_t c) { return !is_ascii_digit(c); };
  text = separate_in_pairs(text, is_no_digit, is_period_or_comma, PairSide::second);
  text = separate_in_pairs(text, is_period_or_comma, is_no_digit, PairSide::first);
  return separate_in_pairs(
      text, is_ascii_digit, [](char32_t c) { return c == '-'; }, PairSide::second);
}

std::u32string apply_international(std::u32string_view text) {
  const auto is_no_number = [](char32_t c) { return !is_unicode_number(c); };
  std::u32string result = separate_in_pairs(text, is_no_number, is_unicode_punctuation, PairSide::second);
  result = separate_in_pairs(result, is_unicode_punctuation, is_no_number, PairSide::first);
  return separate(result, is_unicode_symbol);
}

std::vector<std::string> split_at_white_space(std::u32string_view text) {
  std::vector<std::string> tokens;
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if_not(begin, text.end(), is_unicode_space);
    const auto end = std::find_if(begin, text.end(), is_unicode_space);
    if (begin != end) tokens.push_back(encode_utf8({begin, end}));
    begin = end;
  }
  return tokens;
}

}  // namespace

const std::vector<std::string>& list_bleu_tokenizers() {
  static const auto* const names = new std::vector<std::string>{"13a", "intl", "none", "char"};
  return *names;
}

std::string to_string(BleuTokenizer tokenizer) {
  return list_bleu_tokenizers().at(static_cast<size_t>(tokenizer));
}

BleuTokenizer parse_bleu_tokenizer(const std::string& name) {
  const auto& names = list_bleu_tokenizers();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw std::invalid_argument(
        concat_text("unknown tokenizer \"", name, "\", expected 13a, intl, none or char"));
  return static_cast<BleuTokenizer>(found - names.begin());
}

std::vector<std::string> tokenize_for_bleu(std::string_view segment, BleuTokenizer tokenizer,
                                           bool lower_case) {
  std::u32string text = decode_utf8(segment);
  if (lower_case) text = to_lower_case(text);
  while (!text.empty() && is_unicode_space(text.back())) text.pop_back();
  switch (tokenizer) {
    case BleuTokenizer::mteval_13a:
      return split_at_white_space(apply_13a(std::move(text)));
    case BleuTokenizer::international:
      return split_at_white_space(apply_international(text));
    case BleuTokenizer::characters:
      return split_at_white_space(separate(text, [](char32_t) { return true; }));
    case BleuTokenizer::none:
      break;
  }
  return split_at_white_space(text);
}

}  // namespace tapeformer
