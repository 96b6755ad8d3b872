// Startup and shutdown of the processes of a run, and the number of CPU threads for each process.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

// The host, the process ID and the available processors of one process of the run.
struct ProcessLocation {
  std::string host;
  int64_t pid = 0;
  std::vector<int> processors;  // indices of the processors that the process may use
};

struct ProcessGroup {
  std::shared_ptr<Communicator> communicator = get_single_process_communicator();
  std::vector<ProcessLocation> locations;  // locations of all processes, by rank; empty for one process
  int local_rank = 0;                      // rank among the processes on the same host
  // OMP_NUM_THREADS or, if the variable is not set, the result of compute_default_thread_count(). For one
  // process, this value is 0, and get_default_thread_count() has the number.
  int default_thread_count = 0;
};

// Joins the processes that mpirun or srun started together with this process. If the process was started
// alone, returns a run with one process. The first call initializes MPI; later calls return the same object.
// Throws ConfigError if the environment variables of the launchers contradict each other. Also throws
// ConfigError if there are several processes and this build has no MPI.
const ProcessGroup& init_process_group();

// Returns the message of the ConfigError that init_process_group() threw, or "" if the function threw no
// ConfigError.
std::string get_process_group_error();

// Returns the rank of this process, or 0 before the first call of init_process_group().
int get_process_rank();

// Returns the communicator for tensors on `device` and in host memory. If `device` is a CUDA device and this
// build has NCCL, the communicator uses NCCL for tensors on the device. Otherwise, it uses MPI for all
// tensors.
std::shared_ptr<Communicator> make_communicator(const ProcessGroup& processes, Device device);

// Leaves the run and returns the exit status of this process. The exit status is `exit_status` or, if
// `exit_status` is 0, the largest exit status of all processes.
//
// If `error` is not empty and `print` is not null, the function prints the error. Processes other than
// process 0 add their rank to the error, and do not print an error that process 0 also has.
//
// Waits until all other processes have called destroy_process_group(). Aborts the run in these cases:
// - Another process has ended without calling the function.
// - MPI reports an error.
// - `error` is not empty, and the function has waited for 5 seconds.
using PrintError = void (*)(const std::string& error);
int destroy_process_group(int exit_status, const std::string& error = "", PrintError print = nullptr);

// Throws ConfigError if mpirun or srun started several processes. `command` names the command in the message.
void require_single_process(const std::string& command);

// Returns the number of threads that the process `rank` can run without oversubscription. For each processor
// that the process may use, the function adds 1 / n, where n is the number of processes that may use this
// processor. The sum is at most `quota_processors` divided by the number of processes on the same host, which
// are assumed to share the processor quota. The sum is rounded down, but the result is at least 1.
int compute_default_thread_count(const std::vector<ProcessLocation>& locations, int rank,
                                 double quota_processors = std::numeric_limits<double>::infinity());

// Returns whether the process with this PID is running on this host. A zombie process is not running.
bool is_process_running(int64_t pid);

}  // namespace tapeformer
