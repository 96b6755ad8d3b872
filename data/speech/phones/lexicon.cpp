#include "data/speech/phones/lexicon.h"

#include <algorithm>
#include <array>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "data/speech/phones/phones.h"

namespace tapeformer {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns whether the phone is a vowel of CMUdict followed by a stress digit. In other phone alphabets, a
// digit at the end of a phone is not a stress digit. For example, "@2" is a phoneme of espeak-ng.
bool is_stressed(const std::string& phone) {
  static constexpr std::array<const char*, 15> kVowels = {"AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER",
                                                          "EY", "IH", "IY", "OW", "OY", "UH", "UW"};
  return phone.size() == 3 && phone[2] >= '0' && phone[2] <= '2' &&
         std::find(kVowels.begin(), kVowels.end(), phone.substr(0, 2)) != kVowels.end();
}

// Returns the word without the number of an alternative pronunciation: "read" for "read(2)".
std::string without_variant(const std::string& word) {
  const size_t open = word.rfind('(');
  if (open == std::string::npos || open == 0 || !word.ends_with(')') || open + 2 == word.size()) return word;
  return std::all_of(word.begin() + static_cast<std::ptrdiff_t>(open) + 1, word.end() - 1, is_digit)
             ? word.substr(0, open)
             : word;
}

}  // namespace

Lexicon Lexicon::read(const std::filesystem::path& path, std::vector<std::string>* faults,
                      const std::set<std::string>* phones) {
  Lexicon lexicon;
  for (const TextLine& line : read_lines(path)) try {
      if (line.text.starts_with(";;;")) continue;
      Words words = split_words(line.text.substr(0, line.text.find(" #")));
      if (words.empty()) continue;
      const std::string word = without_variant(words.front());
      words.erase(words.begin());
      if (words.empty()) line.fail("\"" + word + "\" has no phones");
      for (std::string& phone : words) {
        if (is_stressed(phone)) phone.pop_back();
        if (phone == PhoneTable::kBlankName) line.fail(PhoneTable::kBlankNameFault);
        if (phones && !phones->contains(phone)) line.fail("\"" + phone + "\" is not a phone of this lexicon");
      }
      lexicon.add(word, words);
    } catch (const DataError& error) {
      if (!faults) throw;
      faults->push_back(error.what());
    }
  return lexicon;
}

void Lexicon::add(const std::string& word, const Words& phones) {
  entries_.emplace(to_lower_case_utf8(word), phones);
}

void Lexicon::add(const Lexicon& other) {
  entries_.insert(other.entries_.begin(), other.entries_.end());
}

const Words* Lexicon::find(const std::string& word) const {
  const auto found = entries_.find(to_lower_case_utf8(word));
  return found == entries_.end() ? nullptr : &found->second;
}

std::set<std::string> Lexicon::phones() const {
  std::set<std::string> all;
  for (const auto& [word, phones] : entries_) all.insert(phones.begin(), phones.end());
  return all;
}

Words Lexicon::look_up_phones(const Words& words, std::set<std::string>& unknown) const {
  Words phones;
  for (const std::string& word : words) {
    if (const Words* found = find(word))
      phones.insert(phones.end(), found->begin(), found->end());
    else
      unknown.insert(word);
  }
  return phones;
}

}  // namespace tapeformer
