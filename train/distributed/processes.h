// The processes of this run: start, end and their shares of the machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/distributed/communicator.h"

namespace tapeformer {

// Machine and processors of one process of the run.
struct ProcessPlace {
  std::string host;
  int64_t pid = 0;
  std::vector<int> processors;  // that the process may use
};

struct Processes {
  std::shared_ptr<Communicator> communicator = single_process();
  std::vector<ProcessPlace> places;  // of all processes, by rank; empty for a run with one process
  int local_rank = 0;                // number of earlier processes on the same host
  int processor_share = 0;           // threads per process without oversubscription; 0: all processors
};

// Joins the processes that mpirun or srun started with this one. The first call initializes MPI; later calls
// return the same object. Throws ConfigError if the environment is contradictory, or if this build has no MPI
// and the process is one of several. Returns a run with one process if the process was started alone.
const Processes& join_processes();

// Returns the rank that join_processes() has found; 0 before the first call.
int process_rank();

// Returns the communicator for tensors on a device and in host memory: of NCCL for a CUDA device, if this
// build has NCCL, and otherwise of MPI.
std::shared_ptr<Communicator> communicator_for(const Processes& processes, Device device);

// Ends this process's part of the run and returns the exit status of the process: `code`, or, if it is 0, the
// status of a failed process. `print` prints the error of this process. If all processes end at the same time
// with the same error, only process 0 prints it. If other processes are still working, an error ends them.
using PrintError = void (*)(const std::string& error);
int leave_processes(int code, const std::string& error = "", PrintError print = nullptr);

// Throws ConfigError if mpirun or srun started several processes of `what`.
void require_single_process(const std::string& what);

// Returns the number of processors of a process if processes that may use the same processor divide it, at
// least 1.
int processor_share(const std::vector<ProcessPlace>& places, int rank);

// Returns whether a process of this host still runs.
bool is_running(int64_t pid);

}  // namespace tapeformer
