// A collector of log messages.
#pragma once

#include <string>

#include "core/system/log.h"

namespace tapeformer::test {

// Collects log messages during its lifetime.
class MessageLog {
 public:
  MessageLog() {
    text().clear();
    set_log_sink([](LogLevel, const std::string& line) { text() += line + "\n"; });
  }
  MessageLog(const MessageLog&) = delete;
  MessageLog& operator=(const MessageLog&) = delete;
  ~MessageLog() { set_log_sink(nullptr); }
  static std::string& text() {
    static std::string messages;
    return messages;
  }
};

}  // namespace tapeformer::test
