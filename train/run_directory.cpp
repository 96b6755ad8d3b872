#include "train/run_directory.h"

#include "core/errors.h"
#include "train/checkpoint.h"
#include "train/metrics.h"

namespace tapeformer {
namespace {

constexpr char kConfigFile[] = "config.toml";
constexpr char kCheckpoints[] = "checkpoints";

Folder create_and_open(const std::filesystem::path& path) {
  std::filesystem::create_directories(path);
  return Folder(path.string());
}

FolderLock lock_folder(const std::string& path) try {
  return FolderLock(path);
} catch (const FileError& error) {
  if (error.reason() != EWOULDBLOCK) throw;
  throw ConfigError("run directory " + path +
                    ": another process trains in it; name another with --run-dir or run.name");
}

void require_kind(const Folder& folder, const std::string& name, Folder::Kind kind) {
  const Folder::Kind found = folder.kind_of(name);
  if (found == Folder::Kind::none || found == kind) return;
  throw CheckpointError(concat_text(folder.path_of(name), ": expected a ",
                                    kind == Folder::Kind::folder ? "folder" : "regular file", ", found ",
                                    found == Folder::Kind::link ? "a symbolic link" : "something else",
                                    "; a run does not write through other entries of its directory"));
}

}  // namespace

RunDirectory::RunDirectory(const std::filesystem::path& path)
    : folder_(create_and_open(path)), lock_(lock_folder(path.string())) {}

void RunDirectory::prepare(const Config& config, int64_t step, bool evaluated) const {
  require_kind(folder_, kConfigFile, Folder::Kind::file);
  require_kind(folder_, kMetricsFile, Folder::Kind::file);
  require_kind(folder_, kCheckpoints, Folder::Kind::folder);
  remove_unfinished_checkpoints(folder_.path());
  drop_metrics_after(folder_, step, evaluated);
  folder_.replace(kConfigFile, to_toml(config));
}

}  // namespace tapeformer
