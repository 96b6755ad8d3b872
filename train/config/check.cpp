#include "train/config/check.h"

#include <algorithm>

#include "core/errors.h"
#include "data/sets/catalogue.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Require = std::function<void(bool, const std::string&, const std::string&)>;

// Returns the values of model.type that a data set supports.
std::vector<std::string> list_model_types(const CatalogueEntry& set) {
  if (set.type == DatasetType::sequences || set.type == DatasetType::text) return {"sequence"};
  if (set.type == DatasetType::expressions) return {"classification"};
  if (set.type == DatasetType::vectors) return {"set"};
  if (set.type == DatasetType::speech) return {"speech"};
  return set.classes > 0 ? std::vector<std::string>{"image", "classification"}
                         : std::vector<std::string>{"image"};
}

void check_data(const Config& config, const CatalogueEntry& set, const Require& require) {
  const DataConfig& data = config.data;
  const bool images = set.type == DatasetType::images;
  const std::string name = quote_toml_string(data.dataset);
  const std::vector<std::string> types = list_model_types(set);
  require(std::find(types.begin(), types.end(), config.model.type) != types.end(), "model.type",
          "data set " + name + " needs type " + quote_toml_string(types.front()) +
              (types.size() > 1 ? " or " + quote_toml_string(types.back()) : "") + ", got " +
              quote_toml_string(config.model.type));
  const bool varied = set.type == DatasetType::expressions || set.type == DatasetType::vectors;
  require(!varied || data.min_length <= data.max_length, "data.min_length",
          concat_text("expected at most data.max_length = ", data.max_length, ", got ", data.min_length));
  require(!images || set.height == 0 || (set.height % data.downscale == 0 && set.width % data.downscale == 0),
          "data.downscale",
          concat_text(data.downscale, " does not divide images of ", set.height, " x ", set.width));
  require(set.format != DatasetFormat::duplication_task || data.max_length % 2 == 0, "data.max_length",
          concat_text("the duplication task has two equal halves, expected an even number, got ",
                      data.max_length));
  require(images || config.model.positions != "grid", "model.positions",
          "\"grid\" needs a data set of images");
  require(config.model.type != "speech" || config.model.positions != "axial", "model.positions",
          "\"axial\" needs a model of type \"image\" or \"sequence\"");
  const bool text = set.type == DatasetType::text;
  require(!data.path.empty() || !set.needs_path, "data.path",
          "data set " + name + " needs " +
              (text ? "a file, a folder or a pattern"
                    : std::string("the folder of the ") + (images ? "pictures" : "corpus")));
  const bool splits = text || set.format == DatasetFormat::image_folder;
  require(!splits || data.valid_share + data.test_share < 1, "data.test_share",
          concat_text("valid_share + test_share is ", data.valid_share + data.test_share,
                      ", expected less than 1"));
  require(!text || data.eval_context < data.sequence_length, "data.eval_context",
          concat_text("expected less than data.sequence_length = ", data.sequence_length, ", got ",
                      data.eval_context));
  require(
      !text || !data.streams || data.eval_context == 0, "data.eval_context",
      concat_text("the segments of data.streams = true do not overlap, expected 0, got ", data.eval_context));
}

}  // namespace

void check_config(const Config& config, const AttentionCatalogue& catalogue,
                  const std::function<ConfigPosition(const std::string&)>& find_position,
                  std::vector<ConfigProblem>& problems) {
  const auto require = [&](bool condition, const std::string& name, const std::string& message) {
    if (!condition) problems.push_back({find_position(name), name + ": " + message});
  };
  const auto& [run, data, model, attention, optimizer, schedule, train] = config;

  require(train.steps == 0 || train.epochs == 0, "train.epochs",
          "both train.steps and train.epochs are set, expected exactly one");
  require(train.steps > 0 || train.epochs > 0, "train.steps",
          "neither train.steps nor train.epochs is set, expected one above 0");

  if (const CatalogueEntry* const set = find_catalogue_entry(data.dataset)) check_data(config, *set, require);

  if (catalogue.find_model_problems)
    for (const auto& [key, problem] : catalogue.find_model_problems(config)) require(false, key, problem);

  const auto clips_values = optimizer.options.values_by_name().contains("clip_value");
  require(optimizer.clip_norm == 0 || !clips_values, "optimizer.clip_value",
          "both clip_norm and clip_value are set, expected at most one");
  const ScheduleKind& kind = find_schedule_kind(schedule.kind);
  require(!kind.needs_warmup || schedule.warmup_steps > 0, "schedule.warmup_steps",
          "schedule " + quote_toml_string(kind.name) +
              " decays from the end of the warm-up, expected at least 1");
  if (kind.find_problems)
    for (const auto& [option, problem] : kind.find_problems(complete_options(kind.options, schedule.options)))
      require(false, "schedule." + option, problem);
  require(!kind.observe_loss || train.eval_every > 0 || train.eval_epochs > 0, "schedule.kind",
          quote_toml_string(kind.name) + " needs evaluations: set train.eval_every or train.eval_epochs");
}

}  // namespace tapeformer
