#include "train/config/check.h"

#include <algorithm>
#include <array>

#include "core/errors.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Require = std::function<void(bool, const std::string&, const std::string&)>;

bool is_speech_set(const std::string& name) {
  constexpr std::array<const char*, 6> kNames = {"an4",   "fsdd",        "kaldi",
                                                 "timit", "librispeech", "synthetic-speech"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void check_speech(const Config& config, const Require& require) {
  const DataConfig& data = config.data;
  require(data.path != "" || (data.dataset != "kaldi" && data.dataset != "timit"), "data.path",
          "data set " + quoted(data.dataset) + " needs the folder of the corpus");
}

}  // namespace

void check_config(const Config& config, const AttentionCatalogue& catalogue,
                  const std::function<ConfigPosition(const std::string&)>& where,
                  std::vector<ConfigProblem>& problems) {
  const auto require = [&](bool condition, const std::string& name, const std::string& message) {
    if (!condition) problems.push_back({where(name), name + ": " + message});
  };
  const auto& [run, data, model, attention, optimizer, schedule, train] = config;

  require(train.steps == 0 || train.epochs == 0, "train.epochs",
          "both train.steps and train.epochs are set, expected exactly one");
  require(train.steps > 0 || train.epochs > 0, "train.steps",
          "neither train.steps nor train.epochs is set, expected one above 0");

  const bool symbols = data.dataset == "copy" || data.dataset == "duplication";
  const bool speech = is_speech_set(data.dataset);
  const std::string type = symbols ? "sequence" : speech ? "speech" : "image";
  require(model.type == type, "model.type",
          "data set " + quoted(data.dataset) + " needs type " + quoted(type) + ", got " + quoted(model.type));
  const int64_t side = data.dataset == "cifar10" ? 32 : 28;
  require(symbols || speech || side % data.downscale == 0, "data.downscale",
          concat_text(data.downscale, " does not divide images of ", side, " x ", side));
  require(data.dataset != "duplication" || data.max_length % 2 == 0, "data.max_length",
          concat_text("the duplication task has two equal halves, expected an even number, got ",
                      data.max_length));
  require((!symbols && !speech) || model.positions != "grid", "model.positions",
          "\"grid\" needs a data set of images");

  if (speech) check_speech(config, require);

  if (catalogue.model_problems)
    for (const auto& [key, problem] : catalogue.model_problems(config)) require(false, key, problem);

  require(schedule.kind != "step" || !schedule.step_at.empty(), "schedule.step_at",
          "schedule \"step\" needs at least one step");
  require(std::is_sorted(schedule.step_at.begin(), schedule.step_at.end(), std::less_equal<>()),
          "schedule.step_at", "expected increasing steps");
  require(schedule.kind != "plateau" || train.eval_every > 0 || train.eval_epochs > 0, "schedule.kind",
          "\"plateau\" needs evaluations: set train.eval_every or train.eval_epochs");
}

}  // namespace tapeformer
