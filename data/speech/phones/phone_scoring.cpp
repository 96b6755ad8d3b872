#include "data/speech/phones/phone_scoring.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/system/files.h"

namespace tapeformer {

std::vector<AlignedPhone> align_phones(const Words& reference, const Words& hypothesis,
                                       const ErrorWeights& weights) {
  const size_t rows = reference.size() + 1, columns = hypothesis.size() + 1;
  // cost[r * columns + h] is the minimum cost of aligning the first r phones of the reference with the first
  // h phones of the hypothesis.
  std::vector<int64_t> cost(rows * columns);
  const auto at = [&](size_t r, size_t h) -> int64_t& { return cost[r * columns + h]; };
  const auto pair_cost = [&](size_t r, size_t h) {
    return at(r - 1, h - 1) + (reference[r - 1] != hypothesis[h - 1] ? weights.substitution : 0);
  };
  for (size_t r = 0; r < rows; ++r)
    for (size_t h = 0; h < columns; ++h) {
      constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
      const int64_t paired = r > 0 && h > 0 ? pair_cost(r, h) : kNone;
      const int64_t deleted = r > 0 ? at(r - 1, h) + weights.deletion : kNone;
      const int64_t inserted = h > 0 ? at(r, h - 1) + weights.insertion : kNone;
      at(r, h) = r + h == 0 ? 0 : std::min({paired, deleted, inserted});
    }
  std::vector<AlignedPhone> alignment;
  for (size_t r = reference.size(), h = hypothesis.size(); r > 0 || h > 0;) {
    if (r > 0 && h > 0 && at(r, h) == pair_cost(r, h)) {
      alignment.push_back({reference[--r], hypothesis[--h]});
    } else if (r > 0 && at(r, h) == at(r - 1, h) + weights.deletion) {
      alignment.push_back({reference[--r], ""});
    } else {
      alignment.push_back({"", hypothesis[--h]});
    }
  }
  std::reverse(alignment.begin(), alignment.end());
  return alignment;
}

double PhoneScore::error_rate_percent() const {
  if (reference_count == 0) return error_count() == 0 ? 0 : std::numeric_limits<double>::infinity();
  return 100 * static_cast<double>(error_count()) / static_cast<double>(reference_count);
}

void PhoneScore::add(const Words& reference_phones, const Words& hypothesis_phones) {
  const int64_t before = error_count();
  for (const AlignedPhone& pair : align_phones(reference_phones, hypothesis_phones)) {
    if (pair.reference == pair.hypothesis) continue;
    ++(pair.reference.empty()    ? insertion_count
       : pair.hypothesis.empty() ? deletion_count
                                 : substitution_count);
    ++confusions[{pair.reference, pair.hypothesis}];
  }
  reference_count += static_cast<int64_t>(reference_phones.size());
  ++utterance_count;
  wrong_utterance_count += error_count() > before;
}

void PhoneScore::add(const PhoneScore& other) {
  substitution_count += other.substitution_count;
  deletion_count += other.deletion_count;
  insertion_count += other.insertion_count;
  reference_count += other.reference_count;
  utterance_count += other.utterance_count;
  wrong_utterance_count += other.wrong_utterance_count;
  for (const auto& [pair, count] : other.confusions) confusions[pair] += count;
}

std::string PhoneScore::format_line() const {
  std::ostringstream text;
  text << "%PER " << std::fixed << std::setprecision(2) << error_rate_percent() << " [ " << error_count()
       << " / " << reference_count << ", " << insertion_count << " ins, " << deletion_count << " del, "
       << substitution_count << " sub ]";
  return text.str();
}

std::vector<std::pair<std::string, int64_t>> PhoneScore::find_most_frequent_errors(size_t count) const {
  std::vector<std::pair<std::string, int64_t>> result;
  for (const auto& [pair, times] : confusions)
    result.emplace_back((pair.first.empty() ? "(inserted)" : pair.first) + " -> " +
                            (pair.second.empty() ? "(deleted)" : pair.second),
                        times);
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (result.size() > count) result.resize(count);
  return result;
}

std::string format_alignment(const std::vector<AlignedPhone>& alignment) {
  std::ostringstream above, below;
  for (const auto& [said, heard] : alignment) {
    const std::string first = said.empty() ? "***" : said, second = heard.empty() ? "***" : heard;
    const int width = static_cast<int>(std::max(first.size(), second.size()));
    above << ' ' << std::left << std::setw(width) << first;
    below << ' ' << std::left << std::setw(width) << second;
  }
  return "REF:" + above.str() + "\nHYP:" + below.str() + "\n";
}

namespace {

// Replaces each character with a special meaning in sclite by = and two hexadecimal digits. For example,
// sclite reads "@" as the empty word and ";;" as the start of a comment.
std::string trn_word(const std::string& phone) {
  constexpr std::string_view kMarks = "@{}/()<>;*%=&\"\\";
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string word;
  for (const char c : phone)
    if (kMarks.find(c) == std::string_view::npos)
      word += c;
    else
      word += {'=', kHexDigits[static_cast<size_t>(c) / 16], kHexDigits[static_cast<size_t>(c) % 16]};
  return word;
}

}  // namespace

std::pair<std::string, std::string> format_trn(const std::vector<ScoredUtterance>& utterances) {
  std::string reference, hypothesis;
  for (const ScoredUtterance& utterance : utterances) {
    for (const std::string& phone : utterance.reference) reference += trn_word(phone) + " ";
    for (const std::string& phone : utterance.hypothesis) hypothesis += trn_word(phone) + " ";
    reference += "(" + utterance.id + ")\n";
    hypothesis += "(" + utterance.id + ")\n";
  }
  return {reference, hypothesis};
}

}  // namespace tapeformer
