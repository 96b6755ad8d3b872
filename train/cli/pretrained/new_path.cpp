#include "train/cli/pretrained/new_path.h"

#include <csignal>
#include <optional>
#include <thread>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "data/files/text_lines.h"
#include "train/config/config.h"
#include "train/config/value.h"
#include "train/signals.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// A scope in which a stop signal removes a path before it ends the process.
class RemovalOnSignal {
 public:
  explicit RemovalOnSignal(fs::path path)
      : path_(std::move(path)), thread_([this](const std::stop_token& stop) {
          constexpr std::chrono::milliseconds kInterval{20};
          while (signals_->last_signal() == 0 && !stop.stop_requested())
            std::this_thread::sleep_for(kInterval);
          if (signals_->last_signal() != 0) end_process();
        }) {}

 private:
  // Calls the handler that was installed before the scope. Another thread may still write to the path.
  void end_process() {
    std::error_code error;
    do fs::remove_all(path_, error);
    while (error == std::errc::directory_not_empty);
    const int signal = signals_->last_signal();
    signals_.reset();
    raise(signal);
  }

  fs::path path_;
  std::optional<StopSignalScope> signals_{std::in_place};
  std::jthread thread_;
};

}  // namespace

fs::path check_new_path(const std::string& argument, const std::string& text) {
  fs::path path = fs::path(text).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path.filename() == "." || path.filename() == "..")
    throw ConfigError(argument + ": \"" + text + "\" is no name of a new file or folder");
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored)))
    throw ConfigError(argument + ": " + path.string() + " exists; choose a new name");
  return path;
}

fs::path check_new_run(const std::string& argument, const std::string& text) {
  const fs::path path = check_new_path(argument, text);
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError(argument + ": \"" + text + "\" " + problem);
  };
  if (find_invalid_utf8(path.string()) != std::string::npos) refuse("is not valid UTF-8");
  try {
    load_config("", {"train.steps=1", "run.name=" + format_option_value(path.filename().string())},
                {.unused_key_policy = UnusedKeyPolicy::ignore, .purpose = ConfigPurpose::generation});
  } catch (const ConfigError&) {
    refuse("cannot be the name of a run");
  }
  return path;
}

void write_new_path(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = make_temporary_path(path.string());
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path());
  const RemovalOnSignal removal(temporary);
  try {
    write(temporary);
    if (fs::is_directory(temporary)) sync_directory(temporary.string());
    rename_path(temporary.string(), path.string());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace tapeformer
