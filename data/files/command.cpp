#include "data/files/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <vector>

#include "core/base/errors.h"
#include "core/system/process.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

// Copies the output of a program from `pipe` to `file` and waits for the program. Returns the exit status in
// the format of waitpid(). Throws DataError if the size of the output or the run time exceeds its limit; the
// destructor of `child` then kills the program.
int read_output(ChildProcess& child, int pipe, File& file, const CommandLimits& limits) {
  const auto start = std::chrono::steady_clock::now();
  const auto milliseconds_left = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<int>(std::clamp((limits.max_seconds - elapsed.count()) * 1000, 0.0, 1e9));
  };
  const auto give_up = [&](const auto&... why) {
    throw DataError(concat_text(file.path(), " ", why..., " and was killed"));
  };
  std::vector<char> block(1 << 16);
  for (int64_t printed = 0;;) {
    pollfd ready{pipe, POLLIN, 0};
    if (poll(&ready, 1, milliseconds_left()) == 0)
      give_up("took longer than ", limits.max_seconds, " seconds");
    const ssize_t got = read(pipe, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    printed += got;
    if (printed > limits.max_bytes) give_up("printed more than ", limits.max_bytes, " bytes");
    file.write(block.data(), static_cast<size_t>(got));
  }
  constexpr int kPollMilliseconds = 10;
  for (;; poll(nullptr, 0, kPollMilliseconds)) {
    if (const auto status = child.poll()) return *status;
    if (milliseconds_left() == 0) give_up("took longer than ", limits.max_seconds, " seconds");
  }
}

}  // namespace

CommandOutput::CommandOutput(const Words& command, const CommandLimits& limits) try
    : file_(memfd_create("command", MFD_CLOEXEC), "\"" + join_words(command) + "\"") {
  int ends[2] = {};
  if (file_.descriptor() < 0 || pipe2(ends, O_CLOEXEC) != 0)
    throw FileError("read the output of", file_.path());
  const File from(ends[0], "");
  auto to = std::make_unique<File>(ends[1], "");
  ChildProcess child(
      {.program = command.front(), .arguments = command, .output_descriptor = to->descriptor()});
  to.reset();  // closes the write end, so that the pipe ends when the command exits
  const int status = read_output(child, from.descriptor(), file_, limits);
  if (WIFSIGNALED(status))
    throw DataError(concat_text(file_.path(), " was ended by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw DataError(concat_text(file_.path(), " failed with exit code ", WEXITSTATUS(status)));
} catch (const FileError& error) {
  throw DataError(error.what());
}

CommandOutput::CommandOutput(const std::string& shell_line, const CommandLimits& limits)
    : CommandOutput(Words{"/bin/sh", "-c", shell_line}, limits) {}

std::filesystem::path CommandOutput::path() const {
  return concat_text("/proc/self/fd/", file_.descriptor());
}

std::string CommandOutput::text() const {
  const Bytes bytes = read_bytes(path(), int64_t{1} << 31);
  return std::string(view_as_text(bytes, bytes.size()));
}

}  // namespace tapeformer
