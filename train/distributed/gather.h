// Exchange of texts, numbers and errors between the processes of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

// Returns the texts of all processes, ordered by rank. All processes get the same result.
std::vector<std::string> all_gather_texts(Communicator& processes, const std::string& text);

// Returns the numbers of all processes, ordered by rank. All processes get the same result.
std::vector<int64_t> all_gather_numbers(Communicator& processes, int64_t number);

// Returns the text of process 0 on all processes.
std::string broadcast_text(Communicator& processes, const std::string& text);

// Returns the maximum of `value` over all processes. All processes get the same result.
double all_reduce_max(Communicator& processes, double value);

// Calls f() on process 0 and returns the result on all processes. If f() throws, process 0 throws the same
// exception, and the other processes throw FirstProcessError with the text of this exception.
bool run_on_first_process(Communicator& processes, const std::function<bool()>& f);

// Throws ConfigError if `batch_size` is not a multiple of the number of processes. The message contains
// `name`, which is the name of the option, and the nearest valid batch sizes.
void require_divisible_batch_size(const std::string& name, int64_t batch_size, const Communicator& processes);

// Names and values that must be the same on all processes.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

// Throws ConfigError on all processes if the settings of a process differ from the settings of process 0. The
// message lists the processes and, for each setting that differs, the name and the two values.
void require_same_settings(Communicator& processes, const SharedSettings& settings);

}  // namespace tapeformer
