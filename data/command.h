// Other programs, run for what they print. Their standard error is ours, and they read nothing. Any thread.
//
// Errors: DataError with the command when it cannot be run or does not end with 0.
#pragma once

#include <filesystem>
#include <string>

#include "data/phones.h"

namespace tapeformer {

// What a program printed, as a file that is in memory and goes with this object.
class CommandOutput {
 public:
  // The program and its arguments; no shell looks at them.
  explicit CommandOutput(const Words& command);
  // A line for /bin/sh.
  explicit CommandOutput(const std::string& shell_line);
  CommandOutput(const CommandOutput&) = delete;
  CommandOutput& operator=(const CommandOutput&) = delete;

  std::filesystem::path path() const;
  std::string text() const;

 private:
  struct Descriptor {
    int number;
    ~Descriptor();
  };
  Descriptor file_;
};

}  // namespace tapeformer
