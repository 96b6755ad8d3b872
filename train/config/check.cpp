#include "train/config/check.h"

#include <algorithm>
#include <numeric>

#include "core/errors.h"
#include "data/catalogue.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxAxes = 3;  // the product of the sizes does not overflow

using Require = std::function<void(bool, const std::string&, const std::string&)>;

// Returns the model.type of a data set.
std::string model_type(const KnownSet& set) {
  if (set.type == DatasetType::sequences) return "sequence";
  return set.type == DatasetType::speech ? "speech" : "image";
}

void check_data(const Config& config, const KnownSet& set, const Require& require) {
  const DataConfig& data = config.data;
  const bool images = set.type == DatasetType::images;
  const std::string type = model_type(set), name = quoted(data.dataset);
  require(config.model.type == type, "model.type",
          "data set " + name + " needs type " + quoted(type) + ", got " + quoted(config.model.type));
  require(!images || (set.height % data.downscale == 0 && set.width % data.downscale == 0), "data.downscale",
          concat_text(data.downscale, " does not divide images of ", set.height, " x ", set.width));
  require(set.format != DatasetFormat::duplication_task || data.max_length % 2 == 0, "data.max_length",
          concat_text("the duplication task has two equal halves, expected an even number, got ",
                      data.max_length));
  require(images || config.model.positions != "grid", "model.positions",
          "\"grid\" needs a data set of images");
  require(!data.path.empty() || !set.needs_path, "data.path",
          "data set " + name + " needs the folder of the corpus");
}

}  // namespace

void check_config(const Config& config, const std::function<ConfigPosition(const std::string&)>& where,
                  std::vector<ConfigProblem>& problems) {
  const auto require = [&](bool condition, const std::string& name, const std::string& message) {
    if (!condition) problems.push_back({where(name), name + ": " + message});
  };
  const auto& [run, data, model, attention, optimizer, schedule, train] = config;

  require(train.steps == 0 || train.epochs == 0, "train.epochs",
          "both train.steps and train.epochs are set, expected exactly one");
  require(train.steps > 0 || train.epochs > 0, "train.steps",
          "neither train.steps nor train.epochs is set, expected one above 0");

  if (const KnownSet* const set = find_set(data.dataset)) check_data(config, *set, require);

  const int64_t width = model.heads * model.head_dim;
  require(
      model.value_dim < width, "model.value_dim",
      concat_text("expected less than the width (heads x head_dim = ", width, "), got ", model.value_dim));

  const bool axial = model.positions == "axial";
  require(!axial || (!model.axial_shape.empty() && model.axial_shape.size() <= kMaxAxes), "model.axial_shape",
          concat_text("axial positions need a list of 1 to ", kMaxAxes, " sizes, for example [64, 64]"));
  require(!axial || model.axial_dims.size() == model.axial_shape.size(), "model.axial_dims",
          concat_text("expected one number per axis of model.axial_shape, ", model.axial_shape.size(),
                      ", got ", model.axial_dims.size()));
  const int64_t features = std::accumulate(model.axial_dims.begin(), model.axial_dims.end(), int64_t{0});
  require(!axial || features == width, "model.axial_dims",
          concat_text("expected numbers that add up to the width (heads x head_dim = ", width,
                      "), got a sum of ", features));
  require(!model.reversible || model.norm == "pre", "model.norm",
          "reversible layers normalize before each block: expected \"pre\", got " + quoted(model.norm));
  require(!model.reversible || !model.recompute, "model.recompute",
          "reversible layers always recompute activations: expected false");

  require(schedule.kind != "step" || !schedule.step_at.empty(), "schedule.step_at",
          "schedule \"step\" needs at least one step");
  require(std::is_sorted(schedule.step_at.begin(), schedule.step_at.end(), std::less_equal<>()),
          "schedule.step_at", "expected increasing steps");
  require(schedule.kind != "plateau" || train.eval_every > 0 || train.eval_epochs > 0, "schedule.kind",
          "\"plateau\" needs evaluations: set train.eval_every or train.eval_epochs");
}

}  // namespace tapeformer
