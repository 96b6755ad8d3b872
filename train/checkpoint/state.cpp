#include "train/checkpoint/state.h"

#include <nlohmann/json.hpp>

#include "core/errors.h"
#include "train/checkpoint/json_entries.h"

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSteps = 1'000'000'000'000'000;
const char* const kEntry = ",\n  \"crc32\": \"";
const char* const kEnd = "\"\n}\n";

std::map<std::string, Checksum> parse_files(const JsonEntries& entries) {
  std::map<std::string, Checksum> files;
  if (!entries.has("files")) return files;
  const JsonEntries list = entries.object("files");
  for (const std::string& name : list.keys()) {
    const JsonEntries file = list.object(name);
    files[name] = {static_cast<uint64_t>(file.integer("bytes", 0, INT64_MAX)), file.crc32("crc32")};
  }
  return files;
}

std::string without_end(const Json& json) {
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // removes "\n}"
  return text;
}

}  // namespace

std::string to_json(const TrainingState& state) {
  Json json{{"step", state.step},
            {"evaluated_step", state.evaluated_step},
            {"optimizer_steps", state.optimizer_steps},
            {"best_loss", state.best_loss ? Json(*state.best_loss) : Json()},
            {"seconds", state.seconds},
            {"plateau_factor", state.schedule.plateau_factor},
            {"plateau_best", state.schedule.best_loss},
            {"plateau_bad_evaluations", state.schedule.bad_evaluations}};
  if (state.epochs) {
    json["epoch_seconds"] = state.epochs->seconds;
    json["epoch_cpu_seconds"] = state.epochs->cpu_seconds;
    json["seconds_per_epoch"] = state.epochs->last_seconds;
  }
  if (!state.task.empty()) json["task"] = Json::parse(state.task);
  for (const auto& [name, checksum] : state.files)
    json["files"][name] = {{"bytes", checksum.bytes}, {"crc32", format_crc32(checksum.crc32)}};
  const std::string text = without_end(json);
  return text + kEntry + format_crc32(compute_checksum(text).crc32) + kEnd;
}

TrainingState parse_training_state(const std::string& text, const std::string& path) {
  const JsonEntries entries(text, path + ": ");
  TrainingState state;
  state.step = entries.integer("step", 0, kMaxSteps);
  state.evaluated_step = entries.integer("evaluated_step", -1, state.step);
  state.optimizer_steps = entries.integer("optimizer_steps", 0, state.step);
  state.best_loss = entries.number_or_null("best_loss");
  state.seconds = entries.seconds("seconds");
  if (entries.has("epoch_seconds"))
    state.epochs = {entries.seconds("epoch_seconds"), entries.seconds("epoch_cpu_seconds"),
                    entries.seconds("seconds_per_epoch")};
  state.schedule = {entries.number("plateau_factor", 0, 1, "a number from 0 to 1"),
                    entries.number("plateau_best"),
                    entries.integer("plateau_bad_evaluations", 0, state.step + 1)};
  if (entries.has("task")) state.task = entries.object("task").text();
  state.files = parse_files(entries);
  return state;
}

void check_state_text(const std::string& text, const TrainingState& state, const std::string& path) {
  const size_t entry = text.rfind(kEntry);
  if (entry == std::string::npos && state.files.empty()) return;
  const std::string expected = entry == std::string::npos
                                   ? ""
                                   : text.substr(0, entry) + kEntry +
                                         format_crc32(compute_checksum(text.substr(0, entry)).crc32) + kEnd;
  if (text != expected)
    throw CheckpointError(path + ": is damaged or was edited: its text does not match the checksum in it");
}

}  // namespace tapeformer
