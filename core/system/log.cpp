#include "core/system/log.h"

#include <atomic>
#include <cstdio>

#include "core/system/printable.h"

namespace tapeformer {
namespace {

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "";
}

void write_to_stderr(LogLevel level, const std::string& text) {
  // The message is written by one call, so that messages of several threads do not mix.
  std::fputs(concat_text(name_of(level), ": ", text, "\n").c_str(), stderr);
}

std::atomic<LogLevel> lowest_level{LogLevel::info};
std::atomic<LogSink> current_sink{write_to_stderr};

}  // namespace

void log_message(LogLevel level, const std::string& text) {
  if (level >= lowest_level.load()) current_sink.load()(level, escape_message(text));
}
void set_log_level(LogLevel level) {
  lowest_level = level;
}
void set_log_sink(LogSink sink) {
  current_sink = sink ? sink : write_to_stderr;
}

}  // namespace tapeformer
