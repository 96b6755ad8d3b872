// Exchange of texts and numbers between the processes of a run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

// Returns the texts of all processes, ordered by rank. All processes get the same result.
std::vector<std::string> gather_texts(Communicator& processes, const std::string& text);

// Returns the text of process 0 on all processes.
std::string broadcast_text(Communicator& processes, const std::string& text);

// Returns the maximum of `value` over all processes. All processes get the same result.
double largest(Communicator& processes, double value);

// Names and values that must be the same on all processes.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

// Throws ConfigError on all processes if the settings of a process differ from the settings of process 0. The
// message lists the processes and both values.
void require_same(Communicator& processes, const SharedSettings& settings);

}  // namespace tapeformer
