#include "train/reproduce/jobs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "core/system/files.h"
#include "core/system/log.h"
#include "core/system/process.h"
#include "train/distributed/launcher.h"
#include "train/signals.h"

namespace tapeformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};  // time between checks of the running jobs
constexpr std::chrono::seconds kProgress{15};   // time between progress messages
constexpr char kErrorPrefix[] = "error: ";

// Replaces OMP_PROC_BIND in an environment, so that OpenMP does not bind threads. The places of all processes
// begin at the first processor, so bound threads of several jobs would share processors.
void disable_thread_binding(std::vector<std::string>& environment) {
  const std::string name = "OMP_PROC_BIND=";
  std::erase_if(environment, [&](const std::string& variable) { return variable.starts_with(name); });
  environment.push_back(name + "false");  // without OMP_PROC_BIND, OMP_PLACES binds threads
}

ProcessOptions make_process_options(const Job& job, const File& output, const File& log, bool is_only_job) {
  ProcessOptions options{.program = "/proc/self/exe",
                         .arguments = job.arguments,
                         .environment = make_standalone_environment(),
                         .output_descriptor = output.descriptor(),
                         .error_descriptor = log.descriptor(),
                         .end_signal = SIGTERM};
  options.arguments.insert(options.arguments.begin(), "tapeformer");
  options.environment.push_back(kParentVariable + ("=" + std::to_string(getpid())));
  if (!is_only_job) disable_thread_binding(options.environment);
  return options;
}

std::vector<std::string> read_log_lines(const std::filesystem::path& log) {
  const std::string text = read_file(log.string());
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Returns the last error in the log of a job, with the lines after it. If the log has no error, returns a
// description of the exit status.
std::string find_job_error(const Job& job, int status) {
  const std::vector<std::string> lines = read_log_lines(job.log_path);
  const auto error = std::find_if(lines.rbegin(), lines.rend(),
                                  [](const std::string& line) { return line.starts_with(kErrorPrefix); });
  if (error == lines.rend())
    return status > 128 ? concat_text("signal ", status - 128, " ended the process")
                        : concat_text("the process ended with exit status ", status);
  std::string text = error->substr(std::size(kErrorPrefix) - 1);
  for (auto line = error.base(); line != lines.end(); ++line) text += "\n" + *line;
  return text;
}

class RunningJobs {
 public:
  RunningJobs(const std::vector<Job>& jobs, bool one_at_a_time)
      : jobs_(jobs), one_at_a_time_(one_at_a_time) {}
  // Sends SIGTERM to the running jobs, for example after an exception, and waits for them.
  ~RunningJobs() { terminate(); }
  RunningJobs(const RunningJobs&) = delete;
  RunningJobs& operator=(const RunningJobs&) = delete;

  size_t size() const { return running_.size(); }
  void add(size_t job) {
    constexpr int kReplace = O_WRONLY | O_CREAT | O_TRUNC;
    const File output(jobs_[job].output_path, kReplace), log(jobs_[job].log_path, kReplace);
    running_.try_emplace(job, make_process_options(jobs_[job], output, log, one_at_a_time_));
  }
  void terminate() const {
    for (const auto& [job, process] : running_) process.end();
  }
  // Calls `on_finish` for each job that has ended.
  void collect(const std::function<void(size_t, const JobResult&)>& on_finish) {
    for (auto each = running_.begin(); each != running_.end();) {
      const size_t job = each->first;
      const std::optional<int> state = each->second.poll();
      if (!state) {
        ++each;
        continue;
      }
      each = running_.erase(each);
      const int status = WIFEXITED(*state) ? WEXITSTATUS(*state) : 128 + WTERMSIG(*state);
      on_finish(job, {status, status == 0 ? "" : find_job_error(jobs_[job], status)});
    }
  }
  // Logs the last line of the log of each running job, unless the line was logged before.
  void log_progress() {
    for (const auto& [job, process] : running_) {
      const auto lines = read_log_lines(jobs_[job].log_path);
      if (lines.empty() || lines.back() == logged_[job]) continue;
      logged_[job] = lines.back();
      log_info(jobs_[job].name, ": ", lines.back());
    }
  }

 private:
  const std::vector<Job>& jobs_;
  const bool one_at_a_time_;
  std::map<size_t, ChildProcess> running_;
  std::map<size_t, std::string> logged_;  // for each job, the last line that was logged
};

}  // namespace

void run_jobs(const std::vector<Job>& jobs, int64_t max_parallel, bool quiet,
              const std::function<int()>& get_signal,
              const std::function<void(size_t job, const JobResult&)>& on_finish) {
  RunningJobs running(jobs, max_parallel == 1);
  auto shown = Clock::now();
  bool stopping = false;
  for (size_t next = 0; (next < jobs.size() && !stopping) || running.size() > 0;) {
    if (!stopping && get_signal() != 0) {
      stopping = true;
      running.terminate();
    }
    if (!stopping && next < jobs.size() && running.size() < static_cast<size_t>(max_parallel)) {
      log_info(jobs[next].start_message);
      running.add(next++);
      continue;
    }
    running.collect(on_finish);
    if (!quiet && Clock::now() - shown > kProgress) {
      running.log_progress();
      shown = Clock::now();
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace tapeformer
