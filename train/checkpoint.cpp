#include "train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "core/errors.h"
#include "core/files.h"
#include "train/safetensors.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

const char* const kTemporaryPrefix = ".tmp-";
const char* const kModelFile = "model.safetensors";

fs::path checkpoints_of(const std::string& run_dir) {
  return fs::path(run_dir) / "checkpoints";
}

std::string step_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return "step-" + digits;
}

std::optional<int64_t> step_of(const std::string& name) {
  const std::string prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + prefix.size(), end, step);
  if (result.ec != std::errc() || result.ptr != end || step_name(step) != name) return std::nullopt;
  return step;
}

// Runs f and turns its failures into an Error that starts with `context`.
template <class Error = CheckpointError, class F>
void guarded(const std::string& context, F&& f) {
  try {
    f();
  } catch (const FileError& error) {
    throw Error(context + ": " + error.what());
  } catch (const fs::filesystem_error& error) {
    throw Error(context + ": " + error.what());
  }
}

// New folders are durable only when their parents are synced.
void create_folders(const fs::path& path) {
  std::vector<fs::path> created;
  for (fs::path p = path; !p.empty() && !fs::exists(p); p = p.parent_path()) created.push_back(p);
  fs::create_directories(path);
  for (const auto& p : created) sync_folder(p.has_parent_path() ? p.parent_path().string() : ".");
}

// Takes a checkpoint away in one step; what a crash leaves of it is a temporary folder.
void remove_checkpoint(const fs::path& folder) {
  const fs::path doomed = folder.parent_path() / (kTemporaryPrefix + ("old-" + folder.filename().string()));
  fs::remove_all(doomed);
  rename_path(folder.string(), doomed.string());
  fs::remove_all(doomed);
}

void point_symlink(const fs::path& link, const std::string& target) {
  // A copy that followed symlinks has a folder here, a second copy of the checkpoint.
  if (fs::is_directory(fs::symlink_status(link))) remove_checkpoint(link);
  const fs::path temporary = link.parent_path() / (kTemporaryPrefix + link.filename().string());
  fs::remove(temporary);
  fs::create_symlink(target, temporary);
  rename_path(temporary.string(), link.string());
  sync_folder(link.parent_path().string());
}

// The name of the folder that a symlink leads to, if that is there.
std::optional<std::string> linked(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error || !fs::is_directory(link, error)) return std::nullopt;
  return target.filename().string();
}

// Moves a whole folder to its place; one that is there already goes out in the same step, so that no moment
// is without a whole one.
void put_in_place(const fs::path& temporary, const fs::path& place) {
  if (fs::exists(place)) {
    // By number: the C library of older systems lacks the wrapper.
    if (syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) != 0)
      throw FileError("exchange " + temporary.string() + " with", place.string());
  } else {
    rename_path(temporary.string(), place.string());
  }
  sync_folder(place.parent_path().string());
}

void write_contents(const fs::path& folder, const CheckpointContents& contents) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};  // stock loaders ask for it
  write_safetensors((folder / kModelFile).string(), contents.model, metadata);
  write_safetensors((folder / "optimizer.safetensors").string(), contents.optimizer, metadata);
  write_file_synced((folder / "state.json").string(), contents.state_json);
  write_file_synced((folder / "config.toml").string(), contents.config_toml);
  sync_folder(folder.string());
}

}  // namespace

std::string save_checkpoint(const std::string& run_dir, int64_t step, const CheckpointContents& contents) {
  const fs::path parent = checkpoints_of(run_dir);
  const fs::path place = parent / step_name(step), temporary = parent / (kTemporaryPrefix + step_name(step));
  const auto discard = [&] {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  };
  try {
    guarded<CheckpointWriteError>(concat_text("checkpoint of step ", step, " not saved"), [&] {
      create_folders(parent);
      fs::remove_all(temporary);
      fs::create_directory(temporary);
      write_contents(temporary, contents);
      put_in_place(temporary, place);
      point_symlink(parent / "latest", step_name(step));
    });
  } catch (...) {
    discard();
    throw;
  }
  discard();  // the replaced one of the same step
  return place.string();
}

void mark_best_checkpoint(const std::string& run_dir, int64_t step) {
  const fs::path parent = checkpoints_of(run_dir);
  if (!fs::is_directory(parent / step_name(step)))
    throw CheckpointError((parent / step_name(step)).string() + ": no such checkpoint to mark as best");
  guarded<CheckpointWriteError>("best checkpoint not marked",
                                [&] { point_symlink(parent / "best", step_name(step)); });
}

std::vector<int64_t> checkpoint_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  const fs::path parent = checkpoints_of(run_dir);
  if (!fs::is_directory(parent)) return steps;
  guarded("checkpoints not listed", [&] {
    for (const auto& entry : fs::directory_iterator(parent))
      if (const auto step = step_of(entry.path().filename().string()); step && entry.is_directory())
        steps.push_back(*step);
  });
  std::sort(steps.begin(), steps.end());
  return steps;
}

void prune_checkpoints(const std::string& run_dir, int64_t keep_last) {
  const fs::path parent = checkpoints_of(run_dir);
  auto steps = checkpoint_steps(run_dir);
  const auto kept = std::min<size_t>(steps.size(), static_cast<size_t>(std::max<int64_t>(keep_last, 0)));
  steps.resize(steps.size() - kept);
  const auto latest = linked(parent / "latest"), best = linked(parent / "best");
  guarded("old checkpoints not removed", [&] {
    for (const int64_t step : steps)
      if (const auto name = step_name(step); name != latest && name != best) remove_checkpoint(parent / name);
  });
}

void remove_unfinished_checkpoints(const std::string& run_dir) {
  const fs::path parent = checkpoints_of(run_dir);
  if (!fs::is_directory(parent)) return;
  guarded("unfinished checkpoints not removed", [&] {
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(parent))
      if (entry.path().filename().string().starts_with(kTemporaryPrefix)) leftovers.push_back(entry.path());
    for (const auto& path : leftovers) fs::remove_all(path);
  });
}

std::string find_checkpoint(const std::string& path, bool prefer_best) {
  if (fs::exists(fs::path(path) / kModelFile)) return fs::canonical(path).string();
  const fs::path parent = checkpoints_of(path);
  std::string found;
  guarded(path, [&] {
    for (const char* link : {"best", "latest"}) {
      if (!found.empty() || (!prefer_best && link == std::string("best"))) continue;
      if (linked(parent / link)) found = fs::canonical(parent / link).string();
    }
    if (const auto steps = checkpoint_steps(path); found.empty() && !steps.empty())
      found = fs::canonical(parent / step_name(steps.back())).string();
  });
  if (found.empty())
    throw CheckpointError(path + ": expected a run directory with checkpoints or a checkpoint folder with " +
                          kModelFile + (fs::exists(path) ? "" : ", found nothing"));
  return found;
}

std::string Checkpoint::state_json() const {
  std::string text;
  guarded("checkpoint", [&] { text = read_file(folder_ + "/state.json"); });
  return text;
}

void Checkpoint::load_model(const NamedTensorList& expected) const {
  SafetensorsFile(folder_ + "/" + kModelFile).load_into(expected);
}

void Checkpoint::load_optimizer(const NamedTensorList& expected) const {
  SafetensorsFile(folder_ + "/optimizer.safetensors").load_into(expected);
}

}  // namespace tapeformer
