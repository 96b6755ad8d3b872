// Runs other programs and reads their output. They share standard error and get no input. Thread-safe.
//
// Throws DataError with the command if it cannot be run, ends with a status other than 0, or exceeds the
// limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/speech/phones.h"

namespace tapeformer {

struct CommandLimits {
  double seconds = 300;
  int64_t bytes = int64_t{1} << 30;  // four hours of a recording at 16 kHz, and more
};

// A file's descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_;
};

// Kills all running programs and their children. Async-signal-safe, for use before the process ends.
void end_running_commands() noexcept;

// The standard output of a program, as a file in memory that this object owns.
class CommandOutput {
 public:
  // The program and its arguments; no shell looks at them.
  explicit CommandOutput(const Words& command, const CommandLimits& limits = {});
  // A line for /bin/sh.
  explicit CommandOutput(const std::string& shell_line, const CommandLimits& limits = {});

  std::filesystem::path path() const;
  std::string text() const;

 private:
  Descriptor file_;
};

}  // namespace tapeformer
