// Settings of one process of a run, and settings that must be the same on all processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/distributed/gather.h"
#include "train/distributed/processes.h"

namespace tapeformer {

// Returns the table [run] for this process. If there are several processes, the value 0 of run.threads
// becomes ProcessGroup::default_thread_count, and the device "cuda" becomes "cuda:N", where N is
// ProcessGroup::local_rank. The device "auto" becomes "cuda:N" if there is a CUDA device.
RunConfig make_process_run_config(const RunConfig& run, const ProcessGroup& processes);

// Returns a warning for each host on which the total number of threads exceeds the number of processors that
// the processes may use. `thread_counts` holds the number of threads of each process, ordered by rank.
std::vector<std::string> list_oversubscription_warnings(const std::vector<ProcessLocation>& locations,
                                                        const std::vector<int64_t>& thread_counts);

// Logs the number of processes and of their threads, and warns about hosts with too many threads. If the run
// has one process, only logs a message if Slurm has allocated several tasks. All processes must call this
// function.
void log_processes(const ProcessGroup& processes);

// Returns the version of the program, which must be the same on all processes.
SharedSettings list_version_settings();

// Returns list_version_settings() and the config keys that must be the same on all processes. The device, the
// number of threads and the paths of data, caches and initial weights may differ.
SharedSettings list_shared_settings(const Config& config);

// Returns, on all processes, whether `condition` is true on any process.
bool is_true_on_any_process(Communicator& processes, bool condition);
// Returns the largest `signal` of all processes on all processes.
int all_reduce_max_signal(Communicator& processes, int signal);

}  // namespace tapeformer
