// Messages to standard error. Control characters are escaped (core/system/printable.h). This header does not
// include spdlog, because nvcc cannot compile it.
#pragma once

#include <string>

#include "core/errors.h"

namespace tapeformer {

enum class LogLevel { debug, info, warning, error };

void log_message(LogLevel level, const std::string& text);
// Messages below this level are dropped (default: info).
void set_log_level(LogLevel level);

template <class... Args>
void log_info(const Args&... args) {
  log_message(LogLevel::info, concat_text(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  log_message(LogLevel::warning, concat_text(args...));
}

}  // namespace tapeformer
