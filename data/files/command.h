// Functions that run other programs and read their output. The programs inherit standard error and have an
// empty standard input. All functions are thread-safe.
//
// The constructors of CommandOutput throw DataError if the program cannot be run, is killed by a signal,
// exits with a status other than 0, or exceeds the limits. end_child_processes() kills the programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/system/files.h"
#include "data/files/text_lines.h"

namespace tapeformer {

struct CommandLimits {
  double max_seconds = 300;
  // Maximum size of the output. The default is enough for nine hours of 16-bit audio at 16 kHz.
  int64_t max_bytes = int64_t{1} << 30;
};

// The standard output of a program, in a memory file that this object owns.
class CommandOutput {
 public:
  // Runs a program with arguments, without a shell.
  explicit CommandOutput(const Words& command, const CommandLimits& limits = {});
  // Runs a command line with /bin/sh.
  explicit CommandOutput(const std::string& shell_line, const CommandLimits& limits = {});

  // Returns a path in /proc/self/fd from which this process can read the output. The path is valid until the
  // object is destroyed.
  std::filesystem::path path() const;
  std::string text() const;

 private:
  File file_;
};

}  // namespace tapeformer
