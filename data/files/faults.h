// Lists of messages about faults in data, and functions that summarize such lists. A message contains the
// file and line of the fault. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/errors.h"

namespace tapeformer {

// A list of messages about faults in data. Functions that read a corpus have a parameter of type Faults*. If
// the pointer is null, the functions throw DataError at the first fault. Otherwise, the functions append all
// faults to the list.
using Faults = std::vector<std::string>;

// Calls f(). If `faults` is not null, catches DataError and appends its message to `faults`.
template <class F>
void run_and_collect_fault(Faults* faults, F&& f) {
  if (!faults) return f();
  try {
    f();
  } catch (const DataError& error) {
    faults->push_back(error.what());
  }
}

struct FaultLimits {
  int64_t max_per_kind = 5;  // maximum number of shown faults of each kind
  int64_t max_total = 50;    // number of lines after which further kinds are omitted
};

// Returns the kind of a fault. The kind is the text of the fault without paths, words that begin with a quote
// and words that end with a colon. Other words that contain digits are replaced by "#". For example, all
// faults about wrong sample rates have the same kind.
std::string classify_fault(const std::string& fault);

// Groups the faults by kind and returns the first limits.max_per_kind faults of each kind. As soon as the
// result has limits.max_total lines, further kinds are omitted. Lines such as "… and 3 more of this kind" and
// "… and 3 more" give the numbers of omitted faults.
Faults select_faults_to_show(const Faults& faults, const FaultLimits& limits = {});

// Returns the first `max_names` names and the number of remaining names: "one two three … and 9 more".
std::string abbreviate_list(const std::vector<std::string>& names, size_t max_names = 20);

// Returns the lines of select_faults_to_show(faults, limits) as one text, separated by newlines. Newlines and
// control characters in a fault are escaped, so each fault is one line.
std::string format_faults(const Faults& faults, const FaultLimits& limits = {});

// Throws DataError with the text of `problem`, for example that a file contains no usable entries. If entries
// were left out because of faults, the message also contains the number of faults and format_faults(faults).
[[noreturn]] void throw_with_faults(const std::string& problem, const Faults& faults);

}  // namespace tapeformer
