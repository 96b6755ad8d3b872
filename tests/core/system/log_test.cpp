#include "core/system/log.h"

#include <doctest/doctest.h>

#include <vector>

using namespace tapeformer;

namespace {

std::vector<std::pair<LogLevel, std::string>> messages;

// Collects the messages of the log instead of printing them, during the lifetime of the object.
struct CollectedLog {
  CollectedLog() {
    messages.clear();
    set_log_sink([](LogLevel level, const std::string& text) { messages.emplace_back(level, text); });
  }
  ~CollectedLog() {
    set_log_sink(nullptr);
    set_log_level(LogLevel::info);
  }
};

}  // namespace

TEST_CASE("log messages reach the sink with their level, escaped") {
  const CollectedLog log;
  log_info("step ", 3);
  log_warning("bad\x1b[31m");
  REQUIRE(messages.size() == 2);
  CHECK(messages[0] == std::pair(LogLevel::info, std::string("step 3")));
  CHECK(messages[1] == std::pair(LogLevel::warning, std::string("bad\\u001b[31m")));
}

TEST_CASE("messages below the log level are dropped") {
  const CollectedLog log;
  log_message(LogLevel::debug, "hidden by default");
  set_log_level(LogLevel::error);
  log_warning("hidden");
  log_message(LogLevel::error, "shown");
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].second == "shown");
}
