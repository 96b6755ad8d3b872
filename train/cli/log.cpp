#include "train/cli/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "core/system/log.h"
#include "core/system/terminal.h"

namespace tapeformer::cli {
namespace {

spdlog::logger& get_logger() {
  static auto* const instance = [] {
    const auto colors =
        is_controlling_terminal(STDERR_FILENO) ? spdlog::color_mode::automatic : spdlog::color_mode::never;
    auto* made =
        new spdlog::logger("tapeformer", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colors));
    made->set_pattern("%^%l%$: %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog_level(LogLevel level) {
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

void install_terminal_log() {
  set_log_sink(
      [](LogLevel level, const std::string& text) { get_logger().log(to_spdlog_level(level), "{}", text); });
}

}  // namespace tapeformer::cli
