#include "core/options/name_patterns.h"

#include <algorithm>
#include <numeric>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

constexpr size_t kNearestNames = 3;  // number of names in a message

// Returns the names with the least numbers of edits, in ascending order of these numbers.
std::string list_nearest_names(const std::string& pattern, std::vector<std::string> names) {
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return count_pattern_edits(pattern, a) < count_pattern_edits(pattern, b);
  });
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNearestNames); ++i) text += (i ? ", " : "") + names[i];
  return text;
}

std::string strip_negation(const std::string& pattern) {
  return pattern.starts_with('!') ? pattern.substr(1) : pattern;
}

}  // namespace

// Edit distance (Wagner and Fischer 1974), in which * inserts characters at no cost. costs[i] is the number
// of edits between the pattern so far and the first i characters of the name.
int64_t count_pattern_edits(const std::string& pattern, const std::string& name) {
  std::vector<int64_t> costs(name.size() + 1);
  std::iota(costs.begin(), costs.end(), 0);
  for (const char p : pattern) {
    int64_t diagonal = costs[0];
    if (p != '*') ++costs[0];
    for (size_t i = 1; i <= name.size(); ++i) {
      const int64_t above = costs[i], free_or_one = p == '*' ? 0 : 1;
      const int64_t match = diagonal + (p == '*' || p == '?' || p == name[i - 1] ? 0 : 1);
      costs[i] = std::min({match, above + free_or_one, costs[i - 1] + free_or_one});
      diagonal = above;
    }
  }
  return costs.back();
}

bool NamePatterns::matches(const std::string& name) const {
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern)
    if (count_pattern_edits(strip_negation(*pattern), name) == 0) return !pattern->starts_with('!');
  return false;
}

void NamePatterns::require_matches(const std::vector<std::string>& names, const std::string& noun) const {
  for (const std::string& written : patterns_) {
    const std::string pattern = strip_negation(written);
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return count_pattern_edits(pattern, name) == 0; }))
      continue;
    const std::string nearest = list_nearest_names(pattern, names);
    throw ConfigError(concat_text(key_, ": \"", pattern, "\" matches no ", noun,
                                  nearest.empty() ? "" : "; the nearest names are " + nearest));
  }
}

}  // namespace tapeformer
