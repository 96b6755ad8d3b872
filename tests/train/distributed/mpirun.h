// Functions that run programs with mpirun on this machine.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/train/cli/program.h"

namespace tapeformer::test {

// Returns true if mpirun is not available. In this case, prints why the test is skipped.
inline bool is_mpirun_missing() {
  const std::string mpirun = MPIRUN;
  if (!mpirun.empty() && std::filesystem::exists(mpirun)) return false;
  MESSAGE("skipped: this build has no MPI, or mpirun is not installed");
  return true;
}

// Returns the command that runs `words` in several processes of Open MPI. The command also works for the
// superuser, and with more processes than processors.
inline std::vector<std::string> make_mpirun_command(int processes, const std::vector<std::string>& words) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  std::vector<std::string> all = {MPIRUN, "--oversubscribe",        "--bind-to", "none",
                                  "-n",   std::to_string(processes)};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// Returns whether mpirun forwards all bytes of standard output. Open MPI 5.0.7 does not.
inline bool forwards_all_output() {
  const TempDir dir;
  const std::string out = dir / "out", err = dir / "err";
  wait_for_exit_code(start_command({MPIRUN, "--version"}, out, err));
  return !contains(read_file(out), " 5.");
}

// Returns the number of errors in `err`, the standard error of programs.
inline int64_t count_errors(const std::string& err) {
  int64_t count = 0;
  for (size_t at = err.find("error: "); at != std::string::npos; at = err.find("error: ", at + 1)) ++count;
  return count;
}

// Shell code for the parameter `prefix` of a Job. The code writes the exit status of the command to the file
// that Job::status_of() reads, even if the shell receives SIGTERM. With the prefix kRecordStatus,
// Job::pid_of() returns the PID of the shell instead of the PID of the command.
constexpr const char* kRecordStatus =
    " trap : TERM; \"$@\"; code=$?; echo $code > $folder/status.$rank; exit $code;";

// A command that mpirun runs in several processes. Each process writes its PID to the file pid.RANK in a
// temporary folder and then starts the command.
class Job {
 public:
  // Starts the processes. `prefix` is shell code that each process runs before `words`. The code can read
  // $rank (the number of the process) and $folder (the temporary folder), and can change $@ with `set --`.
  //
  // Process 0 writes its standard output to a file, because mpirun of Open MPI 5.0 loses bytes of it. With
  // `forwards_output`, mpirun forwards it, as for a user.
  Job(int processes, std::vector<std::string> words, const std::string& prefix = "",
      bool forwards_output = false)
      : forwards_output_(forwards_output) {
    const std::string code =
        "rank=$OMPI_COMM_WORLD_RANK; folder='" + dir_.path().string() + "'; echo $$ > $folder/pid.$rank; " +
        (forwards_output ? "" : "exec > $folder/stdout.$rank; ") + prefix + " exec \"$@\"";
    words.insert(words.begin(), {"sh", "-c", code, "sh"});
    // After an error, mpirun of Open MPI 5 kills processes that have not ended after this time, and their
    // status is not recorded.
    setenv("PRTE_MCA_odls_base_sigkill_timeout", prefix.find(kRecordStatus) == std::string::npos ? "1" : "4",
           1);
    start_ = std::chrono::steady_clock::now();
    child_ = start_command(make_mpirun_command(processes, words), out().string(), err().string());
  }

  int wait() { return wait_for_exit_code(child_); }
  ProgramResult result() {
    ProgramResult result;
    result.code = wait();
    result.out = read_file(forwards_output_ ? out() : dir_ / "stdout.0");
    result.err = read_file(err());
    return result;
  }
  pid_t pid_of(int rank) const { return static_cast<pid_t>(number_in("pid", rank)); }
  pid_t launcher_pid() const { return child_; }
  // Returns the exit status of a process. The prefix must contain kRecordStatus.
  int status_of(int rank) const { return static_cast<int>(number_in("status", rank)); }
  // Waits until a file exists and contains a text. Returns false after 60 seconds.
  static bool wait_for(const std::filesystem::path& file, const std::string& text = "") {
    for (int i = 0; i < 6000; ++i) {
      if (std::filesystem::exists(file) && contains(read_file(file), text)) return true;
      usleep(10000);
    }
    return false;
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  long number_in(const std::string& file, int rank) const {
    return std::stol(read_file(dir_ / (file + "." + std::to_string(rank))));
  }
  std::filesystem::path out() const { return dir_ / "out"; }
  std::filesystem::path err() const { return dir_ / "err"; }

  TempDir dir_;
  bool forwards_output_;
  pid_t child_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tapeformer::test
