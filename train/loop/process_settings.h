// Settings of one process of a run, and settings that must be the same on all processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"

namespace tapeformer {

// Returns the table [run] for this process. If there are several processes, the function replaces 0 in
// run.threads by ProcessGroup::default_thread_count. It also replaces the device "cuda" by "cuda:N", where N
// is ProcessGroup::local_rank. If there is a CUDA device, it replaces "auto" by "cuda:N" as well.
RunConfig make_process_run_config(const RunConfig& run, const ProcessGroup& processes);

// Returns a warning for each host on which the total number of threads exceeds the number of processors that
// the processes may use. `thread_counts` holds the number of threads of each process, ordered by rank.
std::vector<std::string> list_oversubscription_warnings(const std::vector<ProcessLocation>& locations,
                                                        const std::vector<int64_t>& thread_counts);

// Logs the number of processes of the run, the number of threads of each process, and the warnings that
// list_oversubscription_warnings() returns. If the run has one process, logs only the message of
// describe_unused_tasks(), unless the message is empty. All processes must call this function.
void log_processes(const ProcessGroup& processes);

// Returns the version of the program, which must be the same on all processes.
SharedSettings list_version_settings();

// Returns list_version_settings() and the config keys that must be the same on all processes. The device, the
// number of threads and the paths of data, caches and initial weights may differ.
SharedSettings list_shared_settings(const Config& config);

// is_true_on_any_process() returns whether a condition holds on any process, and all_reduce_max_signal()
// returns the largest signal number of all processes. Both functions return the same value on all processes.
bool is_true_on_any_process(Communicator& processes, bool condition);
int all_reduce_max_signal(Communicator& processes, int signal);

}  // namespace tapeformer
