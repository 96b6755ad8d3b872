#include "train/reproduce/jobs.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <system_error>
#include <thread>

#include "core/system/files.h"
#include "core/system/log.h"
#include "train/distributed/launcher.h"

namespace tapeformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};  // time between checks of the running jobs
constexpr std::chrono::seconds kProgress{15};   // time between progress messages
constexpr int kNotStarted = 127;                // exit status of a child that cannot run the program
constexpr char kErrorPrefix[] = "error: ";

File open_output_file(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw FileError("create", path.string());
  return File(descriptor, path.string());
}

std::vector<char*> list_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Starts the program in a child process. Between fork and exec, the child calls only async-signal-safe
// functions.
pid_t start(const Job& job) {
  const File out = open_output_file(job.output_path), log = open_output_file(job.log_path),
             empty("/dev/null", O_RDONLY);
  std::vector<std::string> arguments = job.arguments;
  arguments.insert(arguments.begin(), "tapeformer");
  const std::vector<std::string> variables = make_standalone_environment();
  const std::vector<char*> words = list_pointers(arguments), environment = list_pointers(variables);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);
  if (getppid() != parent || dup2(empty.descriptor(), STDIN_FILENO) < 0 ||
      dup2(out.descriptor(), STDOUT_FILENO) < 0 || dup2(log.descriptor(), STDERR_FILENO) < 0)
    _exit(kNotStarted);
  execve("/proc/self/exe", words.data(), environment.data());
  _exit(kNotStarted);
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
  explicit RunningJobs(const std::vector<Job>& jobs) : jobs_(jobs) {}
  // Sends SIGTERM to the running jobs, for example after an exception, and waits for them.
  ~RunningJobs() {
    terminate();
    for (const auto& [process, job] : running_)
      while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
      }
  }
  RunningJobs(const RunningJobs&) = delete;
  RunningJobs& operator=(const RunningJobs&) = delete;

  size_t size() const { return running_.size(); }
  void add(size_t job) { running_.emplace(start(jobs_[job]), job); }
  void terminate() const {
    for (const auto& [process, job] : running_) kill(process, SIGTERM);
  }
  // Calls `on_finish` for each job that has ended.
  void collect(const std::function<void(size_t, const JobResult&)>& on_finish) {
    for (auto each = running_.begin(); each != running_.end();) {
      int state = 0;
      if (waitpid(each->first, &state, WNOHANG) != each->first) {
        ++each;
        continue;
      }
      const size_t job = each->second;
      each = running_.erase(each);
      const int status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
      on_finish(job, {status, status == 0 ? "" : find_job_error(jobs_[job], status)});
    }
  }
  // Logs the last line of the log of each running job, unless the line was logged before.
  void log_progress() {
    for (const auto& [process, job] : running_) {
      const auto lines = read_log_lines(jobs_[job].log_path);
      if (lines.empty() || lines.back() == logged_[job]) continue;
      logged_[job] = lines.back();
      log_info(jobs_[job].name, ": ", lines.back());
    }
  }

 private:
  const std::vector<Job>& jobs_;
  std::map<pid_t, size_t> running_;
  std::map<size_t, std::string> logged_;  // for each job, the last line that was logged
};

}  // namespace

void run_jobs(const std::vector<Job>& jobs, int64_t max_parallel, bool quiet,
              const std::function<int()>& get_signal,
              const std::function<void(size_t job, const JobResult&)>& on_finish) {
  RunningJobs running(jobs);
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
