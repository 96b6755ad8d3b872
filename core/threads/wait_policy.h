// A function that parses the value of the environment variable OMP_WAIT_POLICY.
#pragma once

#include <strings.h>

#include <string>
#include <string_view>

namespace tapeformer {

// Returns whether a value of OMP_WAIT_POLICY makes threads sleep instead of spinning. As in OpenMP, case
// and white space around the word are ignored.
inline bool is_passive_wait_policy(std::string_view policy) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = policy.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  const std::string word(policy.substr(begin, policy.find_last_not_of(kSpace) + 1 - begin));
  return strcasecmp(word.c_str(), "passive") == 0;
}

}  // namespace tapeformer
