#include "train/checkpoint/state.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "train/checkpoint/json_entries.h"

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSteps = 1'000'000'000'000'000;
const char* const kEntry = ",\n  \"crc32\": \"";
const char* const kEnd = "\"\n}\n";

Checksum parse_checksum(const JsonObjectReader& file) {
  return {static_cast<uint64_t>(file.get_integer("bytes", 0, INT64_MAX)), file.get_crc32("crc32")};
}

Json make_entry(const Checksum& checksum) {
  return {{"bytes", checksum.bytes}, {"crc32", format_crc32(checksum.crc32)}};
}

std::map<std::string, Checksum> parse_files(const JsonObjectReader& entries) {
  std::map<std::string, Checksum> files;
  const JsonObjectReader list = entries.get_object("files");
  for (const std::string& name : list.keys()) files[name] = parse_checksum(list.get_object(name));
  return files;
}

std::string dump_without_closing_brace(const Json& json) {
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // removes "\n}"
  return text;
}

}  // namespace

std::string to_json(const TrainingState& state) {
  Json json{{"step", state.step},
            {"evaluated_step", state.last_evaluation_step},
            {"optimizer_steps", state.optimizer_step_count},
            {"best_loss", state.best_loss ? Json(*state.best_loss) : Json()},
            {"seconds", state.training_seconds},
            {"plateau_factor", state.schedule_state.plateau_factor},
            {"plateau_best", state.schedule_state.best_loss},
            {"plateau_bad_evaluations", state.schedule_state.non_improving_evaluation_count}};
  if (state.epoch_times) {
    json["epoch_seconds"] = state.epoch_times->seconds;
    json["epoch_cpu_seconds"] = state.epoch_times->cpu_seconds;
    json["seconds_per_epoch"] = state.epoch_times->last_epoch_seconds;
  }
  if (state.is_converted) json["converted"] = true;
  if (!state.training_data_digest.empty()) json["training_data"] = state.training_data_digest;
  if (!state.task_json.empty()) json["task"] = Json::parse(state.task_json);
  if (state.base) {
    json["base"] = {{"folder", state.base->folder}, {"relative_folder", state.base->relative_folder}};
    json["base"].update(make_entry(state.base->checksum));
  }
  if (state.teacher) json["teacher"] = make_entry(*state.teacher);
  for (const auto& [name, checksum] : state.checksums) json["files"][name] = make_entry(checksum);
  const std::string text = dump_without_closing_brace(json);
  return text + kEntry + format_crc32(compute_checksum(text).crc32) + kEnd;
}

TrainingState parse_training_state(const std::string& text, const std::string& path) {
  const JsonObjectReader entries(text, path + ": ");
  TrainingState state;
  state.step = entries.get_integer("step", 0, kMaxSteps);
  state.is_converted = entries.has_key("converted");
  state.last_evaluation_step = entries.get_integer("evaluated_step", -1, state.step);
  state.optimizer_step_count = entries.get_integer("optimizer_steps", 0, state.step);
  state.best_loss = entries.get_number_or_null("best_loss");
  state.training_seconds = entries.get_seconds("seconds");
  if (entries.has_key("epoch_seconds"))
    state.epoch_times = {entries.get_seconds("epoch_seconds"), entries.get_seconds("epoch_cpu_seconds"),
                         entries.get_seconds("seconds_per_epoch")};
  state.schedule_state = {entries.get_number("plateau_factor", 0, 1, "a number from 0 to 1"),
                          entries.get_number("plateau_best"),
                          entries.get_integer("plateau_bad_evaluations", 0, state.step + 1)};
  if (entries.has_key("training_data")) state.training_data_digest = entries.get_string("training_data");
  if (entries.has_key("task")) state.task_json = entries.get_object("task").to_json();
  if (entries.has_key("base")) {
    const JsonObjectReader base = entries.get_object("base");
    state.base = {base.get_string("folder"), base.get_string("relative_folder"), parse_checksum(base)};
  }
  if (entries.has_key("teacher")) state.teacher = parse_checksum(entries.get_object("teacher"));
  state.checksums = parse_files(entries);
  return state;
}

void verify_state_checksum(const std::string& text, const std::string& path) {
  const std::string start = text.substr(0, text.rfind(kEntry));
  if (text != start + kEntry + format_crc32(compute_checksum(start).crc32) + kEnd)
    throw CheckpointError(path + ": is damaged or was edited: its text does not match the checksum in it");
}

}  // namespace tapeformer
