// Tokenizers of BLEU, equal to those of the Python package sacrebleu 2.6.0. All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

enum class BleuTokenizer {
  mteval_13a,     // "13a": the tokens of mteval-v13a.pl, the script of NIST and WMT
  international,  // "intl": the tokens of mteval-v14.pl with --international-tokenization
  none,           // "none": words between white space
  characters,     // "char": each character that is not white space
};

// Returns the names in the order of BleuTokenizer: "13a", "intl", "none", "char".
const std::vector<std::string>& list_bleu_tokenizers();
// Converts between a tokenizer and its name in signatures. parse_bleu_tokenizer() throws
// std::invalid_argument with the known names if the name is unknown.
std::string to_string(BleuTokenizer tokenizer);
BleuTokenizer parse_bleu_tokenizer(const std::string& name);

// Returns the tokens of a segment in UTF-8. With `lower_case`, converts the segment to lower case first, by
// the rules of Unicode. White space is that of Python's str.split(). Each byte that is not valid UTF-8 counts
// as U+FFFD.
std::vector<std::string> tokenize_for_bleu(std::string_view segment, BleuTokenizer tokenizer,
                                           bool lower_case = false);

}  // namespace tapeformer
