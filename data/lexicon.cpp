#include "data/lexicon.h"

#include <algorithm>

#include "data/text_lines.h"

namespace tapeformer {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "read(2)" is another pronunciation of "read".
std::string without_variant(const std::string& word) {
  const size_t open = word.rfind('(');
  if (open == std::string::npos || open == 0 || !word.ends_with(')') || open + 2 == word.size()) return word;
  return std::all_of(word.begin() + static_cast<std::ptrdiff_t>(open) + 1, word.end() - 1, is_digit)
             ? word.substr(0, open)
             : word;
}

}  // namespace

Lexicon Lexicon::read(const std::filesystem::path& path) {
  Lexicon lexicon;
  for (const TextLine& line : read_lines(path)) {
    if (line.text.starts_with(";;;")) continue;
    Words phones = split_words(line.text.substr(0, line.text.find(" #")));
    if (phones.empty()) continue;
    const std::string word = without_variant(phones.front());
    phones.erase(phones.begin());
    if (phones.empty()) line.fail("\"" + word + "\" has no phones");
    for (std::string& phone : phones)
      if (phone.size() > 1 && is_digit(phone.back())) phone.pop_back();
    lexicon.add(word, phones);
  }
  return lexicon;
}

void Lexicon::add(const std::string& word, const Words& phones) {
  entries_.emplace(lower_case(word), phones);
}

const Words* Lexicon::find(const std::string& word) const {
  const auto found = entries_.find(lower_case(word));
  return found == entries_.end() ? nullptr : &found->second;
}

Words Lexicon::pronounce(const Words& words, std::set<std::string>& unknown) const {
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
