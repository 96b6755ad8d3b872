// Exception classes of the library and the commands. If an input is invalid, a function throws an exception
// whose message states the expected and the actual values. The command line maps the type of the exception to
// an exit code. Programming errors are detected by assert().
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tapeformer {

// If a command fails with one of these exceptions, its exit code is the number in the comment of the class.
// For any other exception, the exit code is 1.
class ConfigError : public std::invalid_argument {  // exit code 2: invalid command line or config
  using std::invalid_argument::invalid_argument;
};
class DataError : public std::runtime_error {  // exit code 3: missing or corrupt data
  using std::runtime_error::runtime_error;
};
class DeviceError : public std::runtime_error {  // exit code 4: a device that is unavailable or fails
  using std::runtime_error::runtime_error;
};
class CudaGraphError : public DeviceError {  // exit code 4: an op that a CUDA graph cannot repeat
  using DeviceError::DeviceError;
};
class DivergenceError : public std::runtime_error {  // exit code 5: non-finite loss, gradients or weights
  using std::runtime_error::runtime_error;
};
class CheckpointError : public std::runtime_error {  // exit code 3: a corrupt or mismatched checkpoint
  using std::runtime_error::runtime_error;
};
class CheckpointWriteError : public CheckpointError {  // exit code 1: a checkpoint could not be written
  using CheckpointError::CheckpointError;
};

// An invalid argument of an op or a layer: shape, dtype, device or value.
class ShapeError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class OutOfMemoryError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns the arguments as one string, formatted by operator<<.
template <class... Args>
std::string concat_text(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  return text.str();
}

// Throws ShapeError("op: message") if the condition is false. The parts of the message are converted to
// text only on failure, so pass shapes and numbers, not formatted strings.
template <class... Args>
void check(bool condition, const char* op, const Args&... message) {
  if (!condition) [[unlikely]]
    throw ShapeError(concat_text(op, ": ", message...));
}

}  // namespace tapeformer
