// Proposals of pronunciations by espeak-ng, which runs as a program of its own. A person reviews them: about
// one phone in nine differs from CMUdict.
//
// Errors: DataError when espeak-ng is missing or fails.
#pragma once

#include <optional>
#include <string>

#include "data/lexicon.h"

namespace tapeformer {

// Phonemes of espeak-ng's American voice (parse_espeak_phonemes) as the phones of CMUdict without stress.
// Nothing if a phoneme has no counterpart.
std::optional<Words> arpabet_of_espeak(const Words& phonemes);

// The phones that espeak-ng gives the word; nothing for a word that it does not speak as one.
std::optional<Words> propose_pronunciation(const std::string& word, const std::string& program = "espeak-ng");

// Whether all phones of the lexicon are phones of CMUdict, which proposals have.
bool has_arpabet_phones(const Lexicon& lexicon);

}  // namespace tapeformer
