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

// Starts a job. If other jobs run at the same time, OpenMP does not bind its threads: the places of all
// processes begin at the first processor, so bound threads of several jobs would share processors.
ProcessOptions make_process_options(const Job& job, const File& output, const File& log, bool is_only_job) {
  ProcessOptions options{.program = "/proc/self/exe",
                         .arguments = job.arguments,
                         .environment = make_standalone_environment(),
                         .output_descriptor = output.descriptor(),
                         .error_descriptor = log.descriptor(),
                         .end_signal = SIGTERM};
  options.arguments.insert(options.arguments.begin(), "tapeformer");
  options.environment.push_back(kParentVariable + ("=" + std::to_string(getpid())));
  if (is_only_job) return options;
  const std::string bind = "OMP_PROC_BIND=";  // without the variable, OMP_PLACES binds threads
  std::erase_if(options.environment, [&](const std::string& variable) { return variable.starts_with(bind); });
  options.environment.push_back(bind + "false");
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

}  // namespace

void run_jobs(const std::vector<Job>& jobs, int64_t max_parallel, bool quiet,
              const std::function<int()>& get_signal,
              const std::function<void(size_t job, const JobResult&)>& on_finish) {
  constexpr int kReplace = O_WRONLY | O_CREAT | O_TRUNC;
  std::map<size_t, ChildProcess> running;  // an exception ends the jobs
  std::map<size_t, std::string> shown;     // for each job, the last line of its log that was shown
  auto shown_at = Clock::now();
  bool is_stopping = false;
  for (size_t next = 0; (next < jobs.size() && !is_stopping) || !running.empty();) {
    if (!is_stopping && get_signal() != 0) {
      is_stopping = true;
      for (const auto& [job, process] : running) process.end();
    }
    if (!is_stopping && next < jobs.size() && std::ssize(running) < max_parallel) {
      log_info(jobs[next].start_message);
      const File output(jobs[next].output_path, kReplace), log(jobs[next].log_path, kReplace);
      running.try_emplace(next, make_process_options(jobs[next], output, log, max_parallel == 1));
      ++next;
      continue;
    }
    for (size_t job = 0; job < next; ++job) {
      const auto found = running.find(job);
      const std::optional<int> state = found == running.end() ? std::nullopt : found->second.poll();
      if (!state) continue;
      running.erase(found);
      const int status = WIFEXITED(*state) ? WEXITSTATUS(*state) : 128 + WTERMSIG(*state);
      on_finish(job, {status, status == 0 ? "" : find_job_error(jobs[job], status)});
    }
    if (!quiet && Clock::now() - shown_at > kProgress) {
      shown_at = Clock::now();
      for (const auto& [job, process] : running)
        if (const auto lines = read_log_lines(jobs[job].log_path);
            !lines.empty() && lines.back() != shown[job]) {
          shown[job] = lines.back();
          log_info(jobs[job].name, ": ", lines.back());
        }
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace tapeformer
