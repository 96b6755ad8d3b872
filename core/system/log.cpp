#include "core/system/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/system/printable.h"

namespace tapeformer {
namespace {

spdlog::logger& logger() {
  static auto* const instance = [] {
    auto* made = new spdlog::logger("tapeformer", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log_message(LogLevel level, const std::string& text) {
  logger().log(spdlog_level(level), "{}", printable_message(text));
}
void set_log_level(LogLevel level) {
  logger().set_level(spdlog_level(level));
}

}  // namespace tapeformer
