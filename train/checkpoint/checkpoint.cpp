#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/folder.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTextBytes = size_t{64} << 20;  // maximum size of state.json and config.toml
const char* const kModelFile = "model.safetensors";
const char* const kOptimizerFile = "optimizer.safetensors";
const char* const kStateFile = "state.json";

fs::path checkpoints_folder(const std::string& run_dir) {
  return fs::path(run_dir) / kCheckpointFolderName;
}

std::optional<int64_t> parse_step_name(const std::string& name) {
  const std::string prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + prefix.size(), end, step);
  if (result.ec != std::errc() || result.ptr != end || format_step_name(step) != name) return std::nullopt;
  return step;
}

// Calls f. Converts a FileError or filesystem_error of f to an Error whose text starts with `context`.
template <class Error = CheckpointError, class F>
void call_with_context(const std::string& context, F&& f) {
  try {
    f();
  } catch (const FileError& error) {
    throw Error(context + ": " + error.what());
  } catch (const fs::filesystem_error& error) {
    throw Error(context + ": " + error.path1().string() + ": " + error.code().message());
  }
}

// Opens the folder `checkpoints` of a run directory. Creates missing folders and syncs their parents, so that
// the new folders survive a crash.
Folder open_or_create_checkpoints(const std::string& run_dir) {
  const fs::path path = run_dir.empty() ? "." : fs::path(run_dir);
  std::vector<fs::path> created;
  for (fs::path p = path; !p.empty() && !fs::exists(p); p = p.parent_path()) created.push_back(p);
  fs::create_directories(path);
  for (const auto& p : created) sync_directory(p.has_parent_path() ? p.parent_path().string() : ".");
  const Folder run(path.string());
  if (run.get_entry_kind(kCheckpointFolderName) != Folder::Kind::none)
    return run.open_folder(kCheckpointFolderName);
  Folder checkpoints = run.create_folder(kCheckpointFolderName);
  run.sync();
  return checkpoints;
}

// Renames a checkpoint to a temporary name before removing it, so that a crash leaves no incomplete
// checkpoint.
void remove_checkpoint(const Folder& parent, const std::string& name) {
  const std::string temporary = make_temporary_path(name);
  parent.rename(name, temporary);
  parent.remove_all(temporary);
}

void point_link(const Folder& parent, const std::string& link, const std::string& target) {
  // A copy of a run directory has a folder in place of the link if the copying program followed symlinks.
  if (parent.get_entry_kind(link) == Folder::Kind::folder) remove_checkpoint(parent, link);
  parent.replace_link(link, target);
}

// Returns the target of a symbolic link if the target is a single file name other than "." and "..".
// Otherwise, returns std::nullopt.
std::optional<std::string> read_link_name(const fs::path& link) {
  std::error_code error;
  const std::string target = fs::read_symlink(link, error).string();
  const bool plain =
      !target.empty() && target != "." && target != ".." && target.find('/') == std::string::npos;
  return !error && plain ? std::optional(target) : std::nullopt;
}

bool is_real_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

// Renames the checkpoint `temporary` to `name`. If a checkpoint `name` exists, exchanges the two folders
// atomically, so that `name` is a complete checkpoint at every moment.
void install(const Folder& parent, const std::string& temporary, const std::string& name) {
  if (parent.get_entry_kind(name) == Folder::Kind::none)
    parent.rename(temporary, name);
  else
    parent.exchange(temporary, name);
  parent.sync();
}

void write_contents(const Folder& folder, const CheckpointContents& contents) {
  // Programs that load PyTorch models from safetensors files require this entry.
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  TrainingState state = contents.state;
  for (const auto& [name, tensors] :
       {std::pair(kModelFile, &contents.model_tensors), {kOptimizerFile, &contents.optimizer_tensors}}) {
    File file = folder.create_file(name);
    state.checksums[name] = write_safetensors(file, *tensors, metadata);
  }
  folder.write_new_file(kConfigFileName, contents.config_toml);
  state.checksums[kConfigFileName] = compute_checksum(contents.config_toml);
  folder.write_new_file(kStateFile, to_json(state));
  folder.sync();
}

std::string read_text(const std::string& path) {
  try {
    return read_file(path, kMaxTextBytes);
  } catch (const FileError& error) {
    throw CheckpointError(concat_text("checkpoint: ", error.what()));
  }
}

}  // namespace

std::string format_step_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return "step-" + digits;
}

std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents) {
  const int64_t step = contents.state.step;
  const std::string name = format_step_name(step);
  call_with_context<CheckpointWriteError>(concat_text("checkpoint of step ", step, " not saved"), [&] {
    const Folder parent = open_or_create_checkpoints(run_dir);
    const std::string temporary = make_temporary_path(name);
    try {
      write_contents(parent.create_folder(temporary), contents);
      install(parent, temporary, name);
      point_link(parent, "latest", name);
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(parent.make_entry_path(temporary), ignored);
      throw;
    }
    // If install() has replaced a checkpoint of the same step, the temporary folder is the old checkpoint.
    parent.remove_all(temporary);
  });
  return (checkpoints_folder(run_dir) / name).string();
}

void replace_checkpoint_state(const std::string& run_dir, TrainingState state) {
  const std::string name = format_step_name(state.step);
  state.checksums = Checkpoint((checkpoints_folder(run_dir) / name).string()).read_state().checksums;
  call_with_context<CheckpointWriteError>(concat_text("state of step ", state.step, " not saved"), [&] {
    Folder(run_dir)
        .open_folder(kCheckpointFolderName)
        .open_folder(name)
        .replace_file(kStateFile, to_json(state));
  });
}

void mark_best_checkpoint(const std::string& run_dir, int64_t step) {
  const fs::path parent = checkpoints_folder(run_dir);
  if (!is_real_folder(parent / format_step_name(step)))
    throw CheckpointError((parent / format_step_name(step)).string() +
                          ": no such checkpoint to mark as best");
  call_with_context<CheckpointWriteError>("best checkpoint not marked", [&] {
    point_link(Folder(run_dir).open_folder(kCheckpointFolderName), "best", format_step_name(step));
  });
}

std::vector<int64_t> list_checkpoint_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  const fs::path parent = checkpoints_folder(run_dir);
  if (!is_folder(parent)) return steps;
  call_with_context("checkpoints not listed", [&] {
    for (const auto& entry : fs::directory_iterator(parent))
      if (const auto step = parse_step_name(entry.path().filename().string());
          step && is_real_folder(entry.path()))
        steps.push_back(*step);
  });
  std::sort(steps.begin(), steps.end());
  return steps;
}

void prune_checkpoints(const std::string& run_dir, int64_t keep_last) {
  const fs::path parent = checkpoints_folder(run_dir);
  auto steps = list_checkpoint_steps(run_dir);
  const auto kept = std::min<size_t>(steps.size(), static_cast<size_t>(std::max<int64_t>(keep_last, 0)));
  steps.resize(steps.size() - kept);
  const auto latest = read_link_name(parent / "latest"), best = read_link_name(parent / "best");
  call_with_context("old checkpoints not removed", [&] {
    if (steps.empty()) return;
    const Folder folder = Folder(run_dir).open_folder(kCheckpointFolderName);
    for (const int64_t step : steps)
      if (const auto name = format_step_name(step); name != latest && name != best)
        remove_checkpoint(folder, name);
  });
}

void remove_unfinished_checkpoints(const std::string& run_dir) {
  call_with_context("unfinished checkpoints not removed", [&] {
    for (const fs::path& folder : {fs::path(run_dir), checkpoints_folder(run_dir)}) {
      std::vector<fs::path> leftovers;
      if (!fs::is_directory(folder)) continue;
      for (const auto& entry : fs::directory_iterator(folder))
        if (is_temporary_name(entry.path().filename().string())) leftovers.push_back(entry.path());
      for (const auto& path : leftovers) fs::remove_all(path);
    }
  });
}

std::optional<std::string> resolve_checkpoint_link(const std::string& run_dir, const std::string& link) {
  const fs::path path = checkpoints_folder(run_dir) / link;
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return std::nullopt;
  const auto name = read_link_name(path);
  if (!name)
    throw CheckpointError(concat_text(path.string(),
                                      ": expected a link to a folder beside it, found a link to ",
                                      fs::read_symlink(path, error).string()));
  const fs::path folder = checkpoints_folder(run_dir) / *name;
  if (fs::is_symlink(fs::symlink_status(folder, error)))
    throw CheckpointError(
        concat_text(path.string(), ": points to ", *name, ", which is a link and not a folder"));
  return is_real_folder(folder) ? std::optional(fs::canonical(folder).string()) : std::nullopt;
}

std::string find_checkpoint(const std::string& path, bool prefer_best) {
  if (path_exists(fs::path(path) / kModelFile)) return fs::canonical(path).string();
  const fs::path parent = checkpoints_folder(path);
  std::string found;
  call_with_context(path, [&] {
    for (const char* link : {"best", "latest"}) {
      if (!found.empty() || (!prefer_best && link == std::string("best"))) continue;
      if (const auto folder = resolve_checkpoint_link(path, link)) found = *folder;
    }
    if (const auto steps = list_checkpoint_steps(path); found.empty() && !steps.empty())
      found = fs::canonical(parent / format_step_name(steps.back())).string();
  });
  if (found.empty())
    throw CheckpointError(path + ": expected a run directory with checkpoints or a checkpoint folder with " +
                          kModelFile + (path_exists(path) ? "" : ", found nothing"));
  return found;
}

std::string Checkpoint::read_state_text() const {
  return read_text(state_path());
}

TrainingState Checkpoint::parse_state(const std::string& text) const {
  TrainingState state = parse_training_state(text, state_path());
  const auto named = parse_step_name(fs::path(folder_).filename().string());
  if (named && *named != state.step)
    throw CheckpointError(
        concat_text(state_path(), ": step: expected ", *named, " as in the folder's name, got ", state.step));
  return state;
}

TrainingState Checkpoint::read_state() const {
  return parse_state(read_state_text());
}

Checksum Checkpoint::find_checksum(const TrainingState& state, const std::string& name) const {
  const auto found = state.checksums.find(name);
  if (found == state.checksums.end())
    throw CheckpointError(concat_text(state_path(), ": files.", name, ": is missing"));
  return found->second;
}

Checksum Checkpoint::read_model_checksum() const {
  return find_checksum(read_verified_state(), kModelFile);
}

void Checkpoint::verify_config_checksum() const {
  const std::string config = read_text(config_path());
  if (compute_checksum(config) != find_checksum(read_verified_state(), kConfigFileName))
    throw CheckpointError(
        config_path() +
        ": is damaged or was edited: it does not match its checksum in state.json; override "
        "settings instead of editing the file");
}

TrainingState Checkpoint::read_verified_state() const {
  const std::string text = read_state_text();
  const TrainingState state = parse_state(text);
  verify_state_checksum(text, state_path());
  return state;
}

void Checkpoint::verify_model_checksum() const {
  open_model_file().verify(find_checksum(read_verified_state(), kModelFile));
}

SafetensorsFile Checkpoint::open_model_file() const {
  return SafetensorsFile(file_path(kModelFile));
}

void Checkpoint::load_file(const std::string& name, const NamedTensorList& expected) const {
  SafetensorsFile(file_path(name)).load_into(expected, find_checksum(read_verified_state(), name));
}

void Checkpoint::load_model(const NamedTensorList& expected) const {
  load_file(kModelFile, expected);
}

void Checkpoint::load_optimizer(const NamedTensorList& expected) const {
  load_file(kOptimizerFile, expected);
}

}  // namespace tapeformer
