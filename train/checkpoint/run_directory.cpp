#include "train/checkpoint/run_directory.h"

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "train/checkpoint/checkpoint.h"
#include "train/metrics.h"

namespace tapeformer {
namespace {

Folder create_and_open(const std::filesystem::path& path) {
  std::filesystem::create_directories(path);
  return Folder(path.string());
}

FolderLock lock_folder(const std::string& path) try {
  return FolderLock(path);
} catch (const FileError& error) {
  if (error.error_number() != EWOULDBLOCK) throw;
  throw RunDirectoryError(RunDirectoryError::Reason::locked,
                          "run directory " + path + ": another process trains in it");
}

void require_kind(const Folder& folder, const std::string& name, Folder::Kind kind) {
  const Folder::Kind found = folder.get_entry_kind(name);
  if (found == Folder::Kind::none || found == kind) return;
  throw CheckpointError(concat_text(folder.make_entry_path(name), ": expected a ",
                                    kind == Folder::Kind::folder ? "folder" : "regular file", ", found ",
                                    found == Folder::Kind::link ? "a symbolic link" : "another kind of entry",
                                    "; a run does not write through it"));
}

}  // namespace

RunDirectory::RunDirectory(const std::filesystem::path& path)
    : folder_(create_and_open(path)), lock_(lock_folder(path.string())) {}

void RunDirectory::require_empty() const {
  if (!std::filesystem::is_empty(folder_.path()))
    throw RunDirectoryError(RunDirectoryError::Reason::not_empty,
                            "run directory " + folder_.path() + " is not empty");
}

void RunDirectory::prepare(const Config& config, int64_t step, bool evaluated) const {
  require_kind(folder_, kConfigFileName, Folder::Kind::file);
  require_kind(folder_, kMetricsFileName, Folder::Kind::file);
  require_kind(folder_, kCheckpointFolderName, Folder::Kind::folder);
  remove_unfinished_checkpoints(folder_.path());
  drop_metrics_after(folder_, step, evaluated);
  folder_.replace_file(kConfigFileName, to_toml(config));
}

void require_utf8(const Config& config, const std::string& run_dir) {
  if (find_invalid_utf8(run_dir) != std::string::npos)
    throw RunDirectoryError(RunDirectoryError::Reason::invalid_path,
                            "run directory " + run_dir + ": the path is not valid UTF-8");
  const std::string text = to_toml(config);
  if (const size_t at = find_invalid_utf8(text); at != std::string::npos) {
    const size_t begin = text.rfind('\n', at) + 1;
    throw ConfigError("the config is not valid UTF-8: " + text.substr(begin, text.find('\n', at) - begin));
  }
}

std::filesystem::path find_run_folder(const std::filesystem::path& checkpoint) {
  const std::filesystem::path parent = checkpoint.parent_path();
  return parent.filename() == kCheckpointFolderName ? parent.parent_path() : std::filesystem::path();
}

void check_resume_config(const Config& saved, const Config& current, const std::string& folder) {
  std::string differences;
  for (const std::string& key : find_differing_keys(saved, current))
    if (!may_change_on_resume(key))
      differences += "\n  " + key + " = " + format_config_value(current, key) + ", but the checkpoint has " +
                     format_config_value(saved, key);
  if (!differences.empty())
    throw RunDirectoryError(RunDirectoryError::Reason::different_settings,
                            "cannot resume from " + folder + " with other settings:" + differences);
}

}  // namespace tapeformer
