#include "train/checkpoint/run_directory.h"

#include <algorithm>

#include "core/errors.h"
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
  if (error.reason() != EWOULDBLOCK) throw;
  throw ConfigError("run directory " + path +
                    ": another process trains in it; name another with --run-dir or run.name");
}

void require_kind(const Folder& folder, const std::string& name, Folder::Kind kind) {
  const Folder::Kind found = folder.kind_of(name);
  if (found == Folder::Kind::none || found == kind) return;
  throw CheckpointError(concat_text(folder.path_of(name), ": expected a ",
                                    kind == Folder::Kind::folder ? "folder" : "regular file", ", found ",
                                    found == Folder::Kind::link ? "a symbolic link" : "another kind of entry",
                                    "; a run does not write through it"));
}

bool may_change(const std::string& key) {
  static const auto* const kKeys = new std::vector<std::string>{"run.threads",
                                                                "run.device",
                                                                "run.name",
                                                                "run.cuda_graphs",
                                                                "train.steps",
                                                                "train.epochs",
                                                                "train.eval_every",
                                                                "train.eval_epochs",
                                                                "data.path",
                                                                "data.lexicon",
                                                                "data.feature_cache",
                                                                "train.log_every",
                                                                "train.keep_last",
                                                                "data.eval_limit",
                                                                "train.checkpoint_every",
                                                                "train.eval_batch_size",
                                                                "train.time_limit_minutes"};
  return std::find(kKeys->begin(), kKeys->end(), key) != kKeys->end();
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

void require_utf8(const Config& config, const std::string& run_dir) {
  if (find_invalid_utf8(run_dir) != std::string::npos)
    throw ConfigError("run directory " + run_dir +
                      ": the path is not valid UTF-8; choose another with --run-dir");
  const std::string text = to_toml(config);
  if (const size_t at = find_invalid_utf8(text); at != std::string::npos) {
    const size_t begin = text.rfind('\n', at) + 1;
    throw ConfigError("the config is not valid UTF-8: " + text.substr(begin, text.find('\n', at) - begin));
  }
}

void check_same_run(const Config& before, const Config& now, const std::string& folder) {
  std::string contradictions;
  for (const std::string& key : differing_keys(before, now))
    if (!may_change(key))
      contradictions += "\n  " + key + " = " + config_value_text(now, key) + ", but the checkpoint has " +
                        config_value_text(before, key);
  if (!contradictions.empty())
    throw ConfigError("cannot resume from " + folder +
                      " with another config; take these settings back, or choose another folder with "
                      "--run-dir (reproduce: --out):" +
                      contradictions);
}

}  // namespace tapeformer
