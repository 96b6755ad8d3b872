#include "data/files/faults.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

bool has_digit(const std::string& word) {
  return std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool is_name_or_path(const std::string& word) {
  return word.find('/') != std::string::npos || word.ends_with(':') || word.front() == '"';
}

}  // namespace

std::string classify_fault(const std::string& fault) {
  std::string kind;
  for (const std::string& word : split_words(fault)) {
    if (is_name_or_path(word)) continue;
    kind += (has_digit(word) ? "#" : word) + " ";
  }
  return kind;
}

Faults select_faults_to_show(const Faults& faults, const FaultLimits& limits) {
  std::map<std::string, size_t> numbers;
  std::vector<Faults> kinds;
  std::vector<int64_t> counts;
  for (const std::string& fault : faults) {
    const auto [entry, added] = numbers.emplace(classify_fault(fault), kinds.size());
    if (added) {
      kinds.emplace_back();
      counts.push_back(0);
    }
    if (++counts[entry->second] <= limits.max_per_kind) kinds[entry->second].push_back(fault);
  }
  Faults shown;
  int64_t covered = 0;  // number of faults whose kind is in `shown`
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    if (static_cast<int64_t>(shown.size()) >= limits.max_total) break;
    shown.insert(shown.end(), kinds[kind].begin(), kinds[kind].end());
    const int64_t more = counts[kind] - static_cast<int64_t>(kinds[kind].size());
    if (more > 0) shown.push_back(concat_text("… and ", more, " more of this kind"));
    covered += counts[kind];
  }
  if (const int64_t rest = static_cast<int64_t>(faults.size()) - covered; rest > 0)
    shown.push_back(concat_text("… and ", rest, " more"));
  return shown;
}

std::string abbreviate_list(const std::vector<std::string>& names, size_t max_names) {
  if (names.size() <= max_names) return join_words(names);
  const auto end = names.begin() + static_cast<int64_t>(max_names);
  return concat_text(join_words({names.begin(), end}), " … and ", names.size() - max_names, " more");
}

std::string format_faults(const Faults& faults, const FaultLimits& limits) {
  std::string text;
  for (const std::string& line : select_faults_to_show(faults, limits))
    text += (text.empty() ? "" : "\n") + escape_line(line);
  return text;
}

void throw_with_faults(const std::string& problem, const Faults& faults) {
  if (faults.empty()) throw DataError(problem);
  throw DataError(concat_text(problem, "; ", faults.size(), " cannot be used:\n", format_faults(faults)));
}

}  // namespace tapeformer
