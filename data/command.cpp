#include "data/command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/errors.h"
#include "core/files.h"
#include "data/file.h"

extern char** environ;

namespace tapeformer {
namespace {

std::string joined(const Words& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

CommandOutput::CommandOutput(const Words& command) : file_{memfd_create("command", MFD_CLOEXEC)} {
  if (file_.number < 0) throw DataError(concat_text("no file in memory: ", std::strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, file_.number, STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DataError(concat_text("cannot run ", command[0], ": ", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw DataError(concat_text("\"", joined(command), "\" was ended by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw DataError(concat_text("\"", joined(command), "\" failed with exit code ", WEXITSTATUS(status)));
}

CommandOutput::CommandOutput(const std::string& shell_line)
    : CommandOutput(Words{"/bin/sh", "-c", shell_line}) {}

CommandOutput::Descriptor::~Descriptor() {
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
