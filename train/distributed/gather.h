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

// Returns the largest value of all processes. All processes get the same result.
double largest(Communicator& processes, double value);

// Names and values that must be the same on all processes.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

// Throws ConfigError on all processes if a process has other settings than process 0. The message contains
// the process and the values that differ.
void require_same(Communicator& processes, const SharedSettings& settings);

}  // namespace tapeformer
