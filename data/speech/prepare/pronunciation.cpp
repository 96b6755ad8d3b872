#include "data/speech/prepare/pronunciation.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "data/files/command.h"
#include "data/files/text_lines.h"
#include "data/speech/prepare/synthetic.h"

namespace tapeformer {
namespace {

// Returns a map from the phonemes of the voice en-us of espeak-ng to the phones of CMUdict.
const std::map<std::string, std::string>& espeak_phonemes() {
  static const std::map<std::string, std::string> table = {
      {"a", "AE"},     {"aa", "AE"},    {"a#", "AH"},     {"A:", "AA"},     {"A@", "AA R"},   {"A~", "AA N"},
      {"aI", "AY"},    {"aU", "AW"},    {"aI3", "AY ER"}, {"aI@", "AY AH"}, {"aU@", "AW ER"}, {"0", "AA"},
      {"O", "AO"},     {"O2", "AO"},    {"O:", "AO"},     {"O@", "AO R"},   {"o@", "AO R"},   {"O~", "AO N"},
      {"OI", "OY"},    {"oI", "OY"},    {"oU", "OW"},     {"e@", "EH R"},   {"E", "EH"},      {"E2", "EH"},
      {"eI", "EY"},    {"I", "IH"},     {"I2", "IH"},     {"I#", "IH"},     {"i", "IY"},      {"i:", "IY"},
      {"i@", "IY AH"}, {"i@3", "IH R"}, {"u:", "UW"},     {"U", "UH"},      {"U@", "UH R"},   {"V", "AH"},
      {"@", "AH"},     {"@-", "AH"},    {"@2", "AH"},     {"@5", "AH"},     {"@L", "AH L"},   {"3", "ER"},
      {"3:", "ER"},    {"n-", "AH N"},  {"m-", "AH M"},   {"l-", "AH L"},   {"r-", "R"},      {"l#", "L"},
      {"t#", "T"},     {"t2", "T"},     {"?", "T"},       {"x", "K"},       {"T", "TH"},      {"D", "DH"},
      {"S", "SH"},     {"Z", "ZH"},     {"tS", "CH"},     {"dZ", "JH"},     {"N", "NG"},      {"j", "Y"},
      {"h", "HH"},     {"C", "HH"},     {"w#", "W"},      {"z#", "Z"},      {"d#", "D"}};
  return table;
}

}  // namespace

std::optional<Words> convert_espeak_to_arpabet(const Words& phonemes) {
  Words phones;
  for (const std::string& phoneme : phonemes) {
    const auto found = espeak_phonemes().find(phoneme);
    std::string mapped = found == espeak_phonemes().end() ? "" : found->second;
    constexpr std::string_view kSame = "ptbdkgfvszmnlrw";
    if (phoneme.size() == 1 && kSame.find(phoneme[0]) != std::string_view::npos)
      mapped = static_cast<char>(std::toupper(static_cast<unsigned char>(phoneme[0])));
    if (mapped.empty()) return std::nullopt;
    for (const std::string& phone : split_words(mapped)) {
      const bool same_r = phone == "R" && !phones.empty() && phones.back() == "R";  // "A@ r" contains one R
      if (!same_r) phones.push_back(phone);
    }
  }
  return phones;
}

std::optional<Words> propose_pronunciation(const std::string& word, const std::string& program) {
  // "--" separates options from words that begin with a dash.
  const CommandOutput spoken(Words{program, "-q", "-v", "en-us", "-x", "--sep=_", "--", word});
  const auto phones = convert_espeak_to_arpabet(parse_espeak_phonemes(spoken.text()));
  return phones && !phones->empty() ? phones : std::nullopt;
}

bool has_only_arpabet_phones(const Lexicon& lexicon) {
  std::set<std::string> known = {"P", "T", "B", "D", "K", "G", "F", "V", "S", "Z", "M", "N", "L", "R", "W"};
  for (const auto& [phoneme, phones] : espeak_phonemes())
    for (const std::string& phone : split_words(phones)) known.insert(phone);
  const auto used = lexicon.phones();
  return std::includes(known.begin(), known.end(), used.begin(), used.end());
}

}  // namespace tapeformer
