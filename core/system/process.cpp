#include "core/system/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "core/system/files.h"
#include "core/threads/affinity.h"

namespace tapeformer {
namespace {

// A process group that end_child_processes() ends. The id 0 marks an unused element of running_groups. If the
// array is full, further groups are not recorded and not ended. With this alignment, the element can be read
// in a signal handler: access to it is lock-free.
struct alignas(sizeof(pid_t) + sizeof(int)) RunningGroup {
  pid_t id = 0;
  int end_signal = 0;
};
std::array<std::atomic<RunningGroup>, 256> running_groups;
static_assert(std::atomic<RunningGroup>::is_always_lock_free);

void replace_running_group(RunningGroup from, RunningGroup to) {
  for (auto& slot : running_groups)
    if (RunningGroup expected = from; slot.compare_exchange_strong(expected, to)) return;
}

std::vector<char*> list_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const ProcessOptions& options)
    : program_(options.program), end_signal_(options.end_signal) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, options.output_descriptor, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, options.error_descriptor, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;  // signals that the program ignores, and its children do not
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const UnboundScope all_processors;
  const int error =
      posix_spawnp(&id_, program_.c_str(), &actions, &attributes, list_pointers(options.arguments).data(),
                   options.environment.empty() ? environ : list_pointers(options.environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw FileError("run", program_, error);
  replace_running_group({}, {id_, end_signal_});
}

ChildProcess::~ChildProcess() {
  if (!status_) {
    end();
    while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  replace_running_group({id_, end_signal_}, {});
}

void ChildProcess::end() const {
  kill(-id_, end_signal_);
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  if (status_) return status_;
  const pid_t ended = waitpid(id_, &status, WNOHANG);
  if (ended < 0 && errno != EINTR) throw FileError("wait for", program_);
  if (ended == id_) status_ = status;
  return status_;
}

void end_child_processes() noexcept {
  for (const auto& slot : running_groups)
    if (const RunningGroup group = slot.load(); group.id > 0) kill(-group.id, group.end_signal);
}

}  // namespace tapeformer
