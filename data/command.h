// Other programs, run for what they print. Their standard error is ours, and they read nothing. Any thread.
//
// Errors: DataError with the command when it cannot be run, does not end with 0, takes too long or prints too
// much.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/phones.h"

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

// What a program printed, as a file that is in memory and goes with this object.
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
