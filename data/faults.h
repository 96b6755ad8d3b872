// Messages about faults of data, each with its file and line, and their summaries. All functions are
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/errors.h"

namespace tapeformer {

// Messages of faults. Readers of corpora throw at the first fault. If they get a list, they append every
// fault to the list and continue.
using Faults = std::vector<std::string>;

// Calls f(). If `faults` is given, appends the message of a DataError to it instead of throwing.
template <class F>
void collect_fault(Faults* faults, F&& f) {
  if (!faults) return f();
  try {
    f();
  } catch (const DataError& error) {
    faults->push_back(error.what());
  }
}

struct FaultLimits {
  int64_t of_a_kind = 5;  // faults of each kind
  int64_t in_all = 50;    // faults in all
};

// Returns the kind of a fault: its text without paths, quoted names and numbers. Two recordings with wrong
// rates have faults of the same kind.
std::string fault_kind(const std::string& fault);

// Returns the first faults of every kind, grouped by kind. A line "… and N more of this kind" follows a kind
// with further faults. A line "… and N more" counts the faults beyond `in_all`.
Faults shown_faults(const Faults& faults, const FaultLimits& limits = {});

// Returns the first names and the number of the remaining names: "one two three … and 9 more".
std::string short_list(const std::vector<std::string>& names, size_t max_names = 20);

// Returns shown_faults() joined by newlines.
std::string fault_text(const Faults& faults, const FaultLimits& limits = {});

}  // namespace tapeformer
