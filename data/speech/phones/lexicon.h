// Lexicons, which map words to their phones. A lexicon file has the format of CMUdict. Every line is an entry
// "word PHONE PHONE …", and an alternative pronunciation is an entry for "word(2)". Comments begin with " #",
// or with ";;;" at the start of a line. A digit 0, 1 or 2 at the end of a CMUdict vowel (AH0) is the stress
// of the vowel. Words are case-insensitive.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/speech/phones/phones.h"

namespace tapeformer {

class Lexicon {
 public:
  // Reads a lexicon. Removes the stress digits of the vowels of CMUdict ("AH0" becomes "AH"). If a word has
  // several pronunciations, keeps only the first. Throws DataError with the file and line of the entry if an
  // entry has no phones or contains the phone "<blank>". If `phones` is not null, also throws DataError for a
  // phone that is not in `phones`. If `faults` is not null, appends all faults to `faults` instead of
  // throwing.
  static Lexicon read(const std::filesystem::path& path, std::vector<std::string>* faults = nullptr,
                      const std::set<std::string>* phones = nullptr);

  void add(const std::string& word, const Words& phones);  // has no effect if the lexicon contains `word`
  void add(const Lexicon& other);  // adds the entries of words that this lexicon lacks
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  const Words* find(const std::string& word) const;  // nullptr if the word is unknown
  std::set<std::string> phones() const;              // phones of all words

  // Returns the concatenated phones of the words. Skips words that are not in the lexicon and inserts them
  // into `unknown`.
  Words look_up_phones(const Words& words, std::set<std::string>& unknown) const;

 private:
  std::map<std::string, Words> entries_;  // key: the word in lower case
};

}  // namespace tapeformer
