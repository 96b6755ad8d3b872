// Faults of data as texts, each with its file and line, and short lists of many equal faults. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapeformer {

// Readers of corpora throw at the first fault. If they get a list, they add every fault to it and go on with
// what can be read.
using Faults = std::vector<std::string>;

struct FaultLimits {
  int64_t of_a_kind = 5;
  int64_t in_all = 50;
};

// The kind of a fault: its text without places, names and numbers. Two recordings with the same wrong rate
// have faults of one kind.
std::string fault_kind(const std::string& fault);

// The first faults of every kind in their order, each kind followed by "… and N more of this kind"; at last
// "… and N more" for what in_all leaves out.
Faults shown_faults(const Faults& faults, const FaultLimits& limits = {});

// The first names, and how many more there are: "one two three … and 9 more".
std::string short_list(const std::vector<std::string>& names, size_t most = 20);

// shown_faults as lines.
std::string fault_text(const Faults& faults, const FaultLimits& limits = {});

}  // namespace tapeformer
