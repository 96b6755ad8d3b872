// Settings of one process of a run, and settings that must be the same on all processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"

namespace tapeformer {

// Returns the table [run] for this process. If there is one process, returns `run`. If there are several
// processes, replaces these values:
// - If run.threads is 0, run.threads becomes processes.default_thread_count.
// - If run.device is "cuda", run.device becomes "cuda:N", where N is processes.local_rank.
// - If run.device is "auto" and a CUDA device is available, run.device becomes "cuda:N".
RunConfig make_process_run_config(const RunConfig& run, const ProcessGroup& processes);

// Returns a warning for each host on which the total number of threads exceeds the number of processors that
// the processes may use. `thread_counts` holds the number of threads of each process, ordered by rank.
std::vector<std::string> list_oversubscription_warnings(const std::vector<ProcessLocation>& locations,
                                                        const std::vector<int64_t>& thread_counts);

// Logs the number of processes, the number of threads per process, and the warnings that
// list_oversubscription_warnings() returns. If the run has one process, logs only the text that
// describe_unused_tasks() returns, unless this text is empty. All processes must call the function.
void log_processes(const ProcessGroup& processes);

// Returns the version of the program, which must be the same on all processes.
SharedSettings list_version_settings();

// Returns list_version_settings() and the config values that must be the same on all processes. The returned
// settings do not contain the device, the number of threads, or the paths of data, caches and initial
// weights.
SharedSettings list_shared_settings(const Config& config);

// Returns whether `condition` is true on any process. All processes get the same result.
bool is_true_on_any_process(Communicator& processes, bool condition);
// Returns the maximum of `signal` over all processes. All processes get the same result.
int all_reduce_max_signal(Communicator& processes, int signal);

}  // namespace tapeformer
