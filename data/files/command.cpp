#include "data/files/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "core/errors.h"
#include "core/system/files.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"

extern char** environ;

namespace tapeformer {
namespace {

// The ids of the process groups that kill_running_commands() kills. The value 0 marks an unused element. If
// the array is full, further process groups are not recorded and not killed.
std::array<std::atomic<pid_t>, 256> running;

class RunningProgram {
 public:
  explicit RunningProgram(pid_t process) : process_(process) {
    for (auto& slot : running)
      if (pid_t free = 0; slot.compare_exchange_strong(free, process)) return;
  }
  ~RunningProgram() {
    for (auto& slot : running)
      if (pid_t own = process_; slot.compare_exchange_strong(own, 0)) return;
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

 private:
  pid_t process_;
};

// Copies the output of process `child` from `pipe` to `file` and waits for the process. Returns the exit
// status in the format of waitpid(). If the size of the output or the run time exceeds its limit, kills the
// process group and throws DataError.
int read_output(pid_t child, int pipe, int file, const CommandLimits& limits, const std::string& command) {
  const auto start = std::chrono::steady_clock::now();
  const auto milliseconds_left = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<int>(std::clamp((limits.max_seconds - elapsed.count()) * 1000, 0.0, 1e9));
  };
  const auto give_up = [&](const std::string& why) {
    kill(-child, SIGKILL);
    waitpid(child, nullptr, 0);
    throw DataError(concat_text("\"", command, "\" ", why, " and was killed"));
  };
  const std::string too_long = concat_text("took longer than ", limits.max_seconds, " seconds");
  std::vector<char> block(1 << 16);
  for (int64_t printed = 0;;) {
    pollfd ready{pipe, POLLIN, 0};
    if (poll(&ready, 1, milliseconds_left()) == 0) give_up(too_long);
    const ssize_t got = read(pipe, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    printed += got;
    if (printed > limits.max_bytes) give_up(concat_text("printed more than ", limits.max_bytes, " bytes"));
    if (write(file, block.data(), static_cast<size_t>(got)) != got)
      give_up(concat_text("printed more than fits into memory (", std::strerror(errno), ")"));
  }
  constexpr int kPollMilliseconds = 10;
  int status = 0;
  for (pid_t ended = 0; ended != child;) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR)
      throw DataError(concat_text("\"", command, "\": its exit status is unknown: ", std::strerror(errno)));
    if (ended == child) break;
    if (milliseconds_left() == 0) give_up(too_long);
    poll(nullptr, 0, kPollMilliseconds);
  }
  return status;
}

}  // namespace

void kill_running_commands() noexcept {
  for (const auto& slot : running)
    if (const pid_t process = slot.load(); process > 0) kill(-process, SIGKILL);
}

CommandOutput::CommandOutput(const Words& command, const CommandLimits& limits)
    : file_(memfd_create("command", MFD_CLOEXEC)) {
  if (file_.number() < 0)
    throw DataError(concat_text("cannot create a file in memory: ", std::strerror(errno)));
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw DataError(concat_text("cannot create a pipe: ", std::strerror(errno)));
  const FileDescriptor from(ends[0]);
  auto to = std::make_unique<FileDescriptor>(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to->number(), STDOUT_FILENO);
  // The process starts in a new process group. Killing this group kills all programs of a shell pipeline.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DataError(concat_text("cannot run ", command[0], ": ", std::strerror(error)));
  const RunningProgram registered(child);
  to.reset();  // closes the write end, so that the pipe ends when the command exits
  const int status = read_output(child, from.number(), file_.number(), limits, join_words(command));
  if (WIFSIGNALED(status))
    throw DataError(concat_text("\"", join_words(command), "\" was ended by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw DataError(concat_text("\"", join_words(command), "\" failed with exit code ", WEXITSTATUS(status)));
}

CommandOutput::CommandOutput(const std::string& shell_line, const CommandLimits& limits)
    : CommandOutput(Words{"/bin/sh", "-c", shell_line}, limits) {}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

std::filesystem::path CommandOutput::path() const {
  return concat_text("/proc/self/fd/", file_.number());
}

std::string CommandOutput::text() const {
  const Bytes bytes = read_bytes(path(), int64_t{1} << 31);
  return std::string(view_as_text(bytes, bytes.size()));
}

}  // namespace tapeformer
