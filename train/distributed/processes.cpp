#include "train/distributed/processes.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/threads/default_threads.h"
#include "train/distributed/gather.h"
#include "train/distributed/launcher.h"
#ifdef TAPEFORMER_MPI
#include "train/distributed/mpi_communicator.h"
#endif
#ifdef TAPEFORMER_NCCL
#include "train/distributed/nccl_communicator.h"
#endif

namespace tapeformer {
namespace {

ProcessGroup* this_run = nullptr;  // null until init_process_group() succeeds
// Message of the ConfigError that init_process_group() threw, or null if the function threw no ConfigError.
const std::string* join_failure = nullptr;

#ifdef TAPEFORMER_MPI
// Time in seconds for which destroy_process_group() waits for the other processes before it aborts the run.
// A process that has an error waits for kShutdownSeconds, and other processes wait for kForever.
constexpr double kShutdownSeconds = 5, kForever = 1e12;
// Exit status with which destroy_process_group() aborts the run if the exit status of this process is 0.
constexpr int kAbortStatus = 1;

ProcessLocation find_own_location() {
  ProcessLocation location{.host = {}, .pid = getpid(), .processors = {}};
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  location.host = host;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) location.processors.push_back(i);
  return location;
}

std::string to_text(const ProcessLocation& location) {
  std::string text = location.host + " " + std::to_string(location.pid);
  for (const int processor : location.processors) text += " " + std::to_string(processor);
  return text;
}

ProcessLocation parse_location(const std::string& text) {
  std::istringstream words(text);
  ProcessLocation location;
  words >> location.host >> location.pid;
  for (int processor = 0; words >> processor;) location.processors.push_back(processor);
  return location;
}

int compute_local_rank(const std::vector<ProcessLocation>& locations, int rank) {
  const auto own = locations.begin() + rank;
  return static_cast<int>(std::count_if(
      locations.begin(), own, [&](const ProcessLocation& other) { return other.host == own->host; }));
}

MpiCommunicator* mpi_communicator = nullptr;  // null for a run with one process

// A function object that throws ProcessLostError if another process of the run on this host has ended.
// Processes in other PID namespaces are not visible and are not checked.
class Watch {
 public:
  Watch(const std::vector<ProcessLocation>& locations, int own_rank) {
    for (size_t rank = 0; rank < locations.size(); ++rank)
      if (static_cast<int>(rank) != own_rank &&
          locations[rank].host == locations[static_cast<size_t>(own_rank)].host &&
          is_process_running(locations[rank].pid))
        watched_.push_back({static_cast<int>(rank), locations[rank]});
  }
  // Throws ProcessLostError if two calls find that the same process has ended. The first of these calls does
  // not throw, because the last message of the process may still arrive.
  void operator()() {
    for (const auto& [rank, location] : watched_) {
      if (is_process_running(location.pid)) continue;
      if (lost_ != rank) {
        lost_ = rank;
        return;
      }
      throw ProcessLostError(concat_text("process ", rank, " (PID ", location.pid, " on ", location.host,
                                         ") has ended; the run cannot continue"));
    }
  }

 private:
  std::vector<std::pair<int, ProcessLocation>> watched_;
  int lost_ = -1;
};

ProcessGroup start_processes(const LaunchInfo& launch) {
  auto communicator = MpiCommunicator::start(launch);
  mpi_communicator = communicator.get();
  ProcessGroup processes;
  processes.communicator = std::move(communicator);
  const int rank = processes.communicator->rank();
  if (rank != 0) set_log_level(LogLevel::error);
  for (const std::string& text : all_gather_texts(*processes.communicator, to_text(find_own_location())))
    processes.locations.push_back(parse_location(text));
  mpi_communicator->set_wait_check(Watch(processes.locations, rank));
  processes.local_rank = compute_local_rank(processes.locations, rank);
  const DefaultThreadCount& alone = get_default_thread_count();
  const auto quota = read_processor_quota();
  processes.default_thread_count =
      alone.is_from_environment ? alone.count
      : quota                   ? compute_default_thread_count(processes.locations, rank, quota->processors)
                                : compute_default_thread_count(processes.locations, rank);
  return processes;
}
#else
ProcessGroup start_processes(const LaunchInfo& launch) {
  throw ConfigError(
      concat_text(launch.launcher_name, " started process ", launch.rank, " of ", launch.size,
                  ", but this program was built without MPI; build it with -DTAPEFORMER_MPI=ON, "
                  "or start it alone",
                  describe_variables_to_unset(launch)));
}
#endif

}  // namespace

bool is_process_running(int64_t pid) {
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  // In /proc/PID/stat, the state follows the name of the program, which is in parentheses. The state of a
  // zombie is Z.
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() || stat[name_end + 2] != 'Z';
}

int compute_default_thread_count(const std::vector<ProcessLocation>& locations, int rank,
                                 double quota_processors) {
  const ProcessLocation& own = locations.at(static_cast<size_t>(rank));
  double share = 0;
  for (const int processor : own.processors) {
    const auto users = std::count_if(locations.begin(), locations.end(), [&](const ProcessLocation& other) {
      return other.host == own.host &&
             std::find(other.processors.begin(), other.processors.end(), processor) != other.processors.end();
    });
    share += 1 / static_cast<double>(std::max<int64_t>(users, 1));
  }
  const auto processes_on_host =
      std::count_if(locations.begin(), locations.end(),
                    [&](const ProcessLocation& other) { return other.host == own.host; });
  share = std::min(share, quota_processors / static_cast<double>(processes_on_host));
  constexpr double kRounding = 1e-9;
  return std::max(static_cast<int>(std::floor(share + kRounding)), 1);
}

const ProcessGroup& init_process_group() {
  if (this_run) return *this_run;
  try {
    const LaunchInfo launch = read_launch_info();
    this_run = new ProcessGroup(launch.size > 1 ? start_processes(launch) : ProcessGroup{});
  } catch (const ConfigError& error) {
    join_failure = new std::string(error.what());
    throw;
  }
  return *this_run;
}

std::string get_process_group_error() {
  return join_failure ? *join_failure : "";
}

int get_process_rank() {
  return this_run && this_run->communicator ? this_run->communicator->rank() : 0;
}

std::shared_ptr<Communicator> make_communicator(const ProcessGroup& processes,
                                                [[maybe_unused]] Device device) {
#ifdef TAPEFORMER_NCCL
  if (processes.communicator->size() > 1 && !device.is_cpu())
    return make_nccl_communicator(processes.communicator, device);
#endif
  return processes.communicator;
}

void require_single_process(const std::string& what) {
  const LaunchInfo launch = read_launch_info();
  if (launch.size > 1)
    throw ConfigError(concat_text(launch.launcher_name, " started ", launch.size, " processes, but ", what,
                                  " runs in one process; start it alone",
                                  describe_variables_to_unset(launch)));
}

#ifdef TAPEFORMER_MPI
int destroy_process_group(int exit_status, const std::string& error, PrintError print) {
  if (!mpi_communicator) {
    if (print && !error.empty()) print(error);
    return exit_status;
  }
  MpiCommunicator& processes = *mpi_communicator;
  const int size = processes.size(), rank = processes.rank();
  const std::string own = concat_text("process ", rank, ": ", error);
  // The rows of `ends` have one element per process. Row 0 contains the exit statuses, and row 1 contains
  // hashes of the error messages.
  const Tensor ends = Tensor::zeros({2, size}, DType::int64);
  int64_t* const codes = ends.data<int64_t>();
  int64_t* const errors = codes + size;
  codes[rank] = exit_status;
  errors[rank] = static_cast<int64_t>(std::hash<std::string>{}(error) >> 1);
  std::string failure;
  if (!processes.all_reduce_with_timeout(ends, error.empty() ? kForever : kShutdownSeconds, failure)) {
    if (print) print(error.empty() ? concat_text("process ", rank, ": ", failure) : own);
    processes.abort(exit_status == 0 ? kAbortStatus : exit_status);
  }
  const auto worst = static_cast<int>(*std::max_element(codes, codes + size));
  // When the first process ends with an error, mpirun sends SIGTERM to the remaining processes. This process
  // ignores the signal, because it must still print its error and finalize MPI.
  if (worst != 0) signal(SIGTERM, SIG_IGN);
  if (print && !error.empty() && (rank == 0 || errors[rank] != errors[0])) print(rank == 0 ? error : own);
  mpi_communicator = nullptr;
  this_run->communicator.reset();
  return exit_status != 0 ? exit_status : worst;
}
#else
int destroy_process_group(int exit_status, const std::string& error, PrintError print) {
  if (print && !error.empty()) print(error);
  return exit_status;
}
#endif

}  // namespace tapeformer
