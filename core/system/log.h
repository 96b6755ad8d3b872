// Functions that write log messages to standard error, or to a sink that the program sets.
#pragma once

#include <string>

#include "core/base/errors.h"

namespace tapeformer {

enum class LogLevel { debug, info, warning, error };

// Writes a message if `level` is at least the level that set_log_level() has set. The function is
// thread-safe. Control characters in the text are escaped (core/system/printable.h).
void log_message(LogLevel level, const std::string& text);
// Sets the lowest level of the messages that are written; the default is LogLevel::info.
void set_log_level(LogLevel level);

// A thread-safe function that writes one message. The control characters in `text` are already escaped.
using LogSink = void (*)(LogLevel level, const std::string& text);
// Sets the sink of all later messages; nullptr restores the default sink, which prints "level: text" to
// standard error.
void set_log_sink(LogSink sink);

template <class... Args>
void log_info(const Args&... args) {
  log_message(LogLevel::info, concat_text(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  log_message(LogLevel::warning, concat_text(args...));
}

}  // namespace tapeformer
