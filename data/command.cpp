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
#include "data/text_lines.h"

extern char** environ;

namespace tapeformer {
namespace {

// Ends the descriptor where the constructor that owns it does not finish.
class Guard {
 public:
  explicit Guard(int descriptor) : descriptor_(descriptor) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  void dismiss() { descriptor_ = -1; }

 private:
  int descriptor_;
};

}  // namespace

CommandOutput::CommandOutput(const Words& command) : descriptor_(memfd_create("command", MFD_CLOEXEC)) {
  if (descriptor_ < 0) throw DataError(concat_text("no file in memory: ", std::strerror(errno)));
  Guard guard(descriptor_);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, descriptor_, STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DataError(concat_text("cannot run ", command[0], ": ", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw DataError(concat_text("\"", join_words(command), "\" was ended by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw DataError(concat_text("\"", join_words(command), "\" failed with exit code ", WEXITSTATUS(status)));
  guard.dismiss();
}

CommandOutput::CommandOutput(const std::string& shell_line)
    : CommandOutput(Words{"/bin/sh", "-c", shell_line}) {}

CommandOutput::~CommandOutput() {
  close(descriptor_);
}

std::filesystem::path CommandOutput::path() const {
  return concat_text("/proc/self/fd/", descriptor_);
}

std::string CommandOutput::text() const {
  const Bytes bytes = read_bytes(path(), int64_t{1} << 31);
  return std::string(as_text(bytes, bytes.size()));
}

}  // namespace tapeformer
