// Errors that users see. Every problem that a user can cause is an exception whose text says what was
// expected and what was found; main() turns the type into the exit code of the command. Programmer errors use
// assert.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tapeformer {

// A problem that ends a command with its own exit code; any other exception is a failure while running (exit
// 1).
class ConfigError : public std::invalid_argument {  // exit 2: command line or config
  using std::invalid_argument::invalid_argument;
};
class DataError : public std::runtime_error {  // exit 3: data missing or corrupt
  using std::runtime_error::runtime_error;
};
class DeviceError : public std::runtime_error {  // exit 4: device unavailable
  using std::runtime_error::runtime_error;
};
class GraphError : public DeviceError {  // exit 4: an op that a CUDA graph cannot repeat
  using DeviceError::DeviceError;
};
class DivergedError : public std::runtime_error {  // exit 5: non-finite loss, gradient, weights or logits
  using std::runtime_error::runtime_error;
};
class CheckpointError : public std::runtime_error {  // exit 3: a checkpoint that cannot be trusted
  using std::runtime_error::runtime_error;
};
class CheckpointWriteError : public CheckpointError {  // exit 1: one that could not be written
  using CheckpointError::CheckpointError;
};

// A wrong argument of an op or a layer: shape, dtype, device or value.
class ShapeError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class OutOfMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Streams all arguments into one string.
template <class... Args>
std::string concat_text(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  return text.str();
}

// Throws ShapeError("op: message") unless the condition holds. The message is put together only on failure:
// pass shapes and numbers themselves, not texts made of them.
template <class... Args>
void check(bool condition, const char* op, const Args&... message) {
  if (!condition) [[unlikely]]
    throw ShapeError(concat_text(op, ": ", message...));
}

}  // namespace tapeformer
