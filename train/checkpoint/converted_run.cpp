#include "train/checkpoint/converted_run.h"

#include "core/base/errors.h"
#include "core/system/files.h"

namespace tapeformer {

namespace fs = std::filesystem;

fs::path check_new_run_path(const std::string& text, const std::string& argument) {
  fs::path run = fs::path(text).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();
  if (run.empty() || run.filename() == "." || run.filename() == "..")
    throw ConfigError(argument + ": \"" + text + "\" is no name of a new folder");
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(run, ignored)))
    throw ConfigError(argument + ": " + run.string() + " exists; choose the name of a new folder");
  return run;
}

void write_converted_run(const fs::path& run, const CheckpointContents& contents) {
  const fs::path folder = make_temporary_path(run.string());
  if (!run.parent_path().empty()) fs::create_directories(run.parent_path());
  fs::create_directory(folder);
  try {
    save_checkpoint(folder.string(), contents);
    replace_file((folder / kConfigFileName).string(), contents.config_toml);
    sync_directory(folder.string());
    rename_path(folder.string(), run.string());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
}

}  // namespace tapeformer
