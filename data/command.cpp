#include "data/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/errors.h"
#include "core/files.h"
#include "data/file.h"
#include "data/text_lines.h"

extern char** environ;

namespace tapeformer {
namespace {

// Waits for a process, the first of its own group, and returns its status. Beyond the limits it ends the
// group and throws.
int wait_within(pid_t child, int output, const CommandLimits& limits, const std::string& command) {
  constexpr int kLookMilliseconds = 50;  // at how much was printed
  const FileDescriptor process{static_cast<int>(syscall(SYS_pidfd_open, child, 0))};
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  for (pid_t ended = 0; ended != child; ended = waitpid(child, &status, WNOHANG)) {
    struct stat printed {};
    fstat(output, &printed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const bool too_much = printed.st_size > limits.bytes;
    if (too_much || took.count() > limits.seconds) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      throw DataError(
          too_much
              ? concat_text("\"", command, "\" printed more than ", limits.bytes, " bytes and was ended")
              : concat_text("\"", command, "\" took longer than ", limits.seconds, " seconds and was ended"));
    }
    pollfd end{process.number, POLLIN, 0};
    poll(&end, 1, kLookMilliseconds);  // until it ends
  }
  return status;
}

}  // namespace

CommandOutput::CommandOutput(const Words& command, const CommandLimits& limits)
    : file_{memfd_create("command", MFD_CLOEXEC)} {
  if (file_.number < 0) throw DataError(concat_text("no file in memory: ", std::strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, file_.number, STDOUT_FILENO);
  // A group of its own, so that a pipeline ends as a whole.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DataError(concat_text("cannot run ", command[0], ": ", std::strerror(error)));
  const int status = wait_within(child, file_.number, limits, join_words(command));
  if (WIFSIGNALED(status))
    throw DataError(concat_text("\"", join_words(command), "\" was ended by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw DataError(concat_text("\"", join_words(command), "\" failed with exit code ", WEXITSTATUS(status)));
}

CommandOutput::CommandOutput(const std::string& shell_line, const CommandLimits& limits)
    : CommandOutput(Words{"/bin/sh", "-c", shell_line}, limits) {}

FileDescriptor::~FileDescriptor() {
  if (number >= 0) close(number);
}

std::filesystem::path CommandOutput::path() const {
  return concat_text("/proc/self/fd/", file_.number);
}

std::string CommandOutput::text() const {
  const Bytes bytes = read_bytes(path(), int64_t{1} << 31);
  return std::string(as_text(bytes, bytes.size()));
}

}  // namespace tapeformer
