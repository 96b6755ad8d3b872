// Child processes that run commands of tapeformer, such as `train`. The variables that mpirun and srun set
// are removed from the environment of each child process, so that the child process does not join the
// distributed run of its parent process. Each child process has a separate process group and an empty
// standard input. The standard output and standard error of a child process are written to files. If the
// parent process ends, all child processes receive SIGTERM.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

struct Job {
  std::string name;                             // name in progress messages
  std::vector<std::string> arguments;           // arguments of the program
  std::filesystem::path output_path, log_path;  // files for standard output and standard error
  std::string start_message = {};               // logged when the job starts
};

struct JobResult {
  int exit_status = 0;  // exit status, or 128 + the signal that ended the process
  std::string error;    // last error in the log, if the status is not 0
};

// Runs the jobs in order, at most `max_parallel` at a time, and calls `on_finish` with the index and the
// result of each job that ends. If `quiet` is false, logs the last line of the log of each running job every
// 15 seconds. If `get_signal` returns a number other than 0, sends SIGTERM to the running jobs, waits until
// the running jobs have ended, and returns without starting further jobs. Throws FileError if an output file
// cannot be created or a process cannot be started.
void run_jobs(const std::vector<Job>& jobs, int64_t max_parallel, bool quiet,
              const std::function<int()>& get_signal,
              const std::function<void(size_t job, const JobResult&)>& on_finish);

}  // namespace tapeformer
