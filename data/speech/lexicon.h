// A pronouncing dictionary: from words to phones. Reads the format of CMUdict, one entry per line, "word
// PHONE PHONE …", with alternatives as "word(2)", comments after " #" or on lines that begin with ";;;", and
// stress as 0, 1 or 2 at the end of a vowel in capital letters (AH0). Words are compared without regard to
// case.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/speech/phones.h"

namespace tapeformer {

class Lexicon {
 public:
  // Stress is removed, and nothing else: "a5" of another alphabet keeps its digit. Of several pronunciations
  // the first in the file counts. Throws DataError with file and line for an entry without phones, and for a
  // phone that is none of `phones`, where these are given. With a list of faults it adds them all and goes
  // on.
  static Lexicon read(const std::filesystem::path& path, std::vector<std::string>* faults = nullptr,
                      const std::set<std::string>* phones = nullptr);

  void add(const std::string& word, const Words& phones);  // kept only if the word is new
  void add(const Lexicon& other);                          // keeps existing entries
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  const Words* find(const std::string& word) const;  // nullptr: unknown
  std::set<std::string> phones() const;              // of all words

  // The phones of the words in their order. Words that are not known go into `unknown` and have no phones.
  Words pronounce(const Words& words, std::set<std::string>& unknown) const;

 private:
  std::map<std::string, Words> entries_;  // by the word in lower case
};

}  // namespace tapeformer
