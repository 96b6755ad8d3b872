#include "train/cli/run_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "data/images/png.h"
#include "data/sets/directory.h"
#include "train/build.h"
#include "train/checkpoint/checkpoint.h"
#include "train/loop/tensorboard.h"
#include "train/metrics.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// write_image_grid() enlarges images by an integer factor of at most kMaxScale. The factor is the largest
// from 1 to kMaxScale for which the images of a row have a total width of at most kMaxGridPixels pixels.
constexpr int64_t kMaxGridPixels = 4000, kMaxScale = 4;

// Returns the options of a grid of `count` images. If `columns` is 0, the grid is nearly square.
ImageGridOptions make_grid_options(const DatasetInfo& info, int64_t count, int64_t columns) {
  ImageGridOptions options;
  options.columns =
      columns > 0 ? columns : static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  options.scale =
      std::clamp<int64_t>(kMaxGridPixels / std::max<int64_t>(options.columns * info.width, 1), 1, kMaxScale);
  return options;
}

// If run.tensorboard is true, adds a picture to the TensorBoard event files in the samples folder.
// TensorBoard stops reading an event file when a newer event file appears in the same folder, so pictures and
// the event files of training are in different folders.
void add_to_events(const LoadedTask& run, const fs::path& path, const Tensor& picture) {
  const fs::path folder = run.samples_folder();
  if (!run.config().run.tensorboard || folder.empty()) return;
  fs::create_directories(folder);
  EventWriter(Folder(folder.string()))
      .write_image(path.stem().string(), run.step, read_file(path.string()), picture.size(0), picture.size(1),
                   picture.size(2));
}

std::vector<SubjectOptions> list_form_options(const std::vector<CommandForm>& forms) {
  std::vector<SubjectOptions> all;
  for (const CommandForm& form : forms) all.push_back(form.options);
  return all;
}

}  // namespace

PositionalArgument make_run_argument() {
  return {"RUN", "a run directory or a checkpoint folder"};
}

OptionSpec make_checkpoint_option() {
  return {.name = "checkpoint",
          .default_value = std::string("latest"),
          .help = "checkpoint of the run directory: latest, best, step-… or the number of a step"};
}

DataAccessOptions make_data_access(const CommandLine& line) {
  const std::string option = make_allow_commands_option().name;
  return {line.common_options.data_dir, line.options.contains(option) && line.options.get<bool>(option)};
}

LoadedTask load_task(const CommandLine& line, ConfigPurpose purpose) {
  LoadedTask loaded = load_task({.path = line.positionals.front(),
                                 .checkpoint_name = line.options.get<std::string>("checkpoint"),
                                 .config_settings = line.common_options.config_settings,
                                 .device = select_device(line.common_options),
                                 .purpose = purpose,
                                 .data = make_data_access(line)});
  log_info("checkpoint ", loaded.checkpoint_folder.string());
  return loaded;
}

std::vector<OptionSpec> merge_subject_options(const std::vector<SubjectOptions>& all) {
  std::vector<OptionSpec> merged;
  for (const auto& [subject, options] : all)
    for (OptionSpec spec : options) {
      spec.help = subject + ": " + spec.help;
      const auto same = std::find_if(merged.begin(), merged.end(),
                                     [&](const OptionSpec& other) { return other.name == spec.name; });
      if (same == merged.end()) {
        merged.push_back(std::move(spec));
        continue;
      }
      if (same->default_value != spec.default_value)
        same->default_text =
            describe_option(*same).fallback + "; " + subject + ": " + describe_option(spec).fallback;
      same->help += "; " + spec.help;
    }
  return merged;
}

std::vector<OptionSpec> merge_form_options(const std::vector<CommandForm>& forms) {
  return merge_subject_options(list_form_options(forms));
}

OptionValues read_subject_options(const std::vector<SubjectOptions>& all, const CommandLine& line,
                                  const Task& task) {
  OptionValues values;
  for (const std::string& name : line.given_option_names) {
    std::vector<std::string> subjects;
    for (const auto& [subject, options] : all)
      if (has_option(options, name)) subjects.push_back(subject);
    if (subjects.empty()) continue;
    require_subject(task, subjects, "--" + name);
    values.set(name, line.options.values_by_name().at(name));
  }
  return values;
}

void run_form(const std::string& command, const std::vector<CommandForm>& forms, const LoadedTask& run,
              const CommandLine& line) {
  std::vector<std::string> subjects;
  for (const CommandForm& form : forms) subjects.push_back(form.options.subject);
  require_subject(*run.task, subjects, "\"" + command + "\"");
  read_subject_options(list_form_options(forms), line, *run.task);
  for (const CommandForm& form : forms)
    if (form.options.subject == run.task->subject()) form.run(run, line);
}

void add_fields(const MetricRecord& record, Report& report) {
  for (const auto& field : record)
    std::visit([&](const auto& value) { report.add(field.first, value); }, field.second);
}

void throw_with_option_advice(const RunDirectoryError& error, const std::string& folder_option) {
  const std::string text = error.what();
  switch (error.reason()) {
    case RunDirectoryError::Reason::not_empty:
      throw ConfigError(text + ": continue it with --resume, or choose another with " + folder_option);
    case RunDirectoryError::Reason::different_settings:
      throw ConfigError(text + "\nRestore these settings, or choose another folder with " + folder_option);
    default:
      throw ConfigError(text + "; choose another with " + folder_option);
  }
}

OptionSpec make_generation_mode_option() {
  return {.name = "mode",
          .default_value = std::string("auto"),
          .help = "recurrent: one step per token; recompute: the whole prefix for each token",
          .choices = {"auto", "recurrent", "recompute"}};
}

GenerationMode choose_generation_mode(const CommandLine& line, const AutoregressiveModel& model) {
  const auto& mode = line.options.get<std::string>("mode");
  if (mode == "recompute") return GenerationMode::recompute;
  const std::string reason = describe_unsupported(model.options().encoder.attention, "recurrent form",
                                                  &AttentionCapabilities::recurrent);
  if (reason.empty()) return GenerationMode::recurrent;
  if (mode == "recurrent") throw ConfigError("--mode recurrent: " + reason + "; use --mode recompute");
  log_info(reason, "; each token recomputes the whole prefix");
  return GenerationMode::recompute;
}

OptionSpec make_weights_option() {
  return {
      .name = "weights",
      .default_value = std::string("full"),
      .help =
          "full: in run.precision; int8: matrices are rounded to blocks of 32 integers of 8 bits with one "
          "scale (CPU)",
      .choices = {"full", "int8"}};
}

WeightFormat apply_weights_option(const CommandLine& line, const Task& task) {
  if (line.options.get<std::string>("weights") == "full") return WeightFormat::operand;
  for (const auto& [name, tensor] : task.model().saved_tensors()) {
    if (!tensor.device().is_cpu()) throw ConfigError("--weights int8 is for the CPU; add --device cpu");
    if (tensor.rank() == 2 && name.ends_with(".weight")) round_to_int8_blocks(tensor);
  }
  return WeightFormat::int8;
}

std::string to_string(GenerationMode mode) {
  return mode == GenerationMode::recurrent ? "recurrent" : "recompute";
}

std::vector<fs::path> list_run_files(const fs::path& run_folder) {
  return {run_folder / kConfigFileName, run_folder / kMetricsFileName, run_folder / kCheckpointFolderName};
}

std::vector<fs::path> list_input_paths(const Config& config, const fs::path& checkpoint_folder,
                                       const std::string& data_dir) {
  const fs::path parent = checkpoint_folder.parent_path();
  std::vector<fs::path> paths = {checkpoint_folder};
  if (parent.filename() == kCheckpointFolderName) paths = list_run_files(parent.parent_path());
  const DatasetKind& kind = find_dataset_kind(config.data.dataset);
  const OptionValues values = config.data.all_options();
  for (const OptionSpec& option : kind.options) {
    const bool is_corpus = option.name == "path" && kind.type == DatasetType::speech;
    if (!option.is_path || is_corpus || option.name.ends_with("_cache")) continue;
    if (const auto& path = values.get<std::string>(option.name); !path.empty()) paths.emplace_back(path);
  }
  const CatalogueEntry* const set = find_catalogue_entry(kind.name);
  if (const auto folder = set ? find_dataset_folder(*set, data_dir) : std::nullopt)
    for (const CatalogueFile& file : set->files)
      if (const auto path = locate_file(*folder, file.name)) paths.push_back(*path);
  return paths;
}

OptionSpec make_picture_path_option() {
  return {.name = "out",
          .default_value = std::string(),
          .help = "PNG file",
          .default_text = "a file in the samples folder of the run"};
}

void check_png_extension(const CommandLine& line) {
  const fs::path path = line.options.get<std::string>("out");
  if (!path.empty() && path.extension() != ".png")
    throw ConfigError("--out " + path.string() + ": expected a file name that ends in .png");
}

fs::path prepare_picture_path(const LoadedTask& run, const CommandLine& line, const std::string& name) {
  fs::path path = line.options.get<std::string>("out");
  if (path.empty()) {
    path = run.samples_folder() / (name + "-" + run.checkpoint_folder.filename().string() + ".png");
    std::error_code ignored;
    for (const fs::path& entry : {path.parent_path(), path})
      if (fs::is_symlink(fs::symlink_status(entry, ignored)))
        throw std::runtime_error(
            "cannot write " + path.string() + ": " + entry.string() +
            " is a symbolic link, and runs do not write through links; choose a file with --out");
  } else {
    refuse_to_replace_inputs(
        {path}, list_input_paths(run.config(), run.checkpoint_folder, line.common_options.data_dir));
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || access(folder.c_str(), W_OK) != 0)
    throw std::runtime_error("cannot write " + path.string() +
                             ": the folder is not writable; choose a file with --out");
  return path;
}

void check_grid_size(const LoadedTask& run, int64_t count, int64_t columns) {
  const DatasetInfo& info = run.as<AutoregressiveTask>().dataset_info();
  try {
    compute_grid_size(count, info.height, info.width, make_grid_options(info, count, columns));
  } catch (const ShapeError&) {
    throw ConfigError(
        concat_text("a grid of ", count, " images exceeds ", kMaxPixels, " pixels; choose fewer images"));
  }
}

void write_image_grid(const LoadedTask& run, const fs::path& path, const Tensor& images, int64_t columns) {
  const DatasetInfo& info = run.as<AutoregressiveTask>().dataset_info();
  const Tensor picture = make_image_grid(images, info.height, info.width, info.channels,
                                         make_grid_options(info, images.size(0), columns));
  write_png(path, picture);
  add_to_events(run, path, picture);
  log_info("wrote ", path.string());
}

}  // namespace tapeformer
