// Unicode text as the scores of translations see it: code points, categories and lower case as in Python 3.
// The tables are those of utf8proc, so characters of newer Unicode versions are unassigned. Internal to the
// scores of translations. All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

// Returns the code points of a UTF-8 text. Each byte that is not part of a valid character becomes U+FFFD.
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

// Returns whether Python's str.isspace() is true for the character: the separators of words.
bool is_unicode_space(char32_t c);
// Returns whether the general category of the character is N* (numbers), P* (punctuation) or S* (symbols).
bool is_unicode_number(char32_t c);
bool is_unicode_punctuation(char32_t c);
bool is_unicode_symbol(char32_t c);

// Returns the text in lower case, as Python's str.lower(): a capital sigma at the end of a word becomes
// U+03C2 (condition Final_Sigma of the Unicode Standard, section 3.13), and U+0130 becomes "i" and U+0307.
std::u32string to_lower_case(std::u32string_view text);

}  // namespace tapeformer
