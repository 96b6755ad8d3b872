// Pronunciations proposed by the program espeak-ng. The user should review the pronunciations, because about
// one phone in nine differs from the pronunciation in CMUdict.
//
// Functions throw DataError if espeak-ng is missing or fails.
#pragma once

#include <optional>
#include <string>

#include "data/speech/phones/lexicon.h"

namespace tapeformer {

// Converts the phonemes that parse_espeak_phonemes() returns for American English to phones of CMUdict
// without stress. Returns std::nullopt if a phoneme has no counterpart.
std::optional<Words> convert_espeak_to_arpabet(const Words& phonemes);

// Returns the phones of the word according to espeak-ng. Returns std::nullopt if espeak-ng prints no phonemes
// or prints a phoneme that has no counterpart in CMUdict.
std::optional<Words> propose_pronunciation(const std::string& word, const std::string& program = "espeak-ng");

// Returns whether all phones of the lexicon are phones of CMUdict.
bool has_only_arpabet_phones(const Lexicon& lexicon);

}  // namespace tapeformer
