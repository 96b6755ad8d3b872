#include "train/tasks/speech/description.h"

#include <nlohmann/json.hpp>

#include "core/errors.h"
#include "train/checkpoint/json_entries.h"

namespace tapeformer {
namespace {

// Limits of the entries of state.json.
constexpr int64_t kMaxDims = 1'000'000;
constexpr double kMaxTotalFrames = 1e15;                // maximum number of frames of all utterances
constexpr int64_t kMaxUtteranceFrames = 1'000'000'000;  // maximum number of frames of one utterance

}  // namespace

std::string to_json(const SpeechDescription& description) {
  const Words& names = description.phone_table.names();
  nlohmann::ordered_json json{{"dims", description.feature_dim},
                              {"phones", Words(names.begin() + 1, names.end())}};
  if (description.global_statistics)
    json["global"] = {{"frames", description.global_statistics->frames},
                      {"sums", description.global_statistics->sums},
                      {"squares", description.global_statistics->squares}};
  if (description.max_frame_count > 0) json["longest_frames"] = description.max_frame_count;
  return json.dump();
}

SpeechDescription parse_speech_description(const std::string& task_json, const std::string& path) try {
  if (task_json.empty())
    throw CheckpointError(path + ": task: is missing, expected the data of a speech model");
  const JsonObjectReader entries(task_json, path + ": task.");
  SpeechDescription description;
  description.feature_dim = entries.get_integer("dims", 1, kMaxDims);
  description.phone_table = PhoneTable(entries.get_strings("phones"));
  if (entries.has_key("global")) {
    const JsonObjectReader global = entries.get_object("global");
    description.global_statistics = {
        global.get_number("frames", 1, kMaxTotalFrames, "a number of frames of at least 1"),
        global.get_numbers("sums"), global.get_numbers("squares")};
    const size_t size = description.global_statistics->sums.size();
    if (size == 0 || size != description.global_statistics->squares.size() ||
        static_cast<size_t>(description.feature_dim) % size != 0)
      throw CheckpointError(concat_text(
          path, ": task.global: expected sums and squares of one size that divides ", description.feature_dim,
          ", got ", size, " and ", description.global_statistics->squares.size()));
  }
  // Checkpoints of earlier versions lack the length of the longest utterance.
  if (entries.has_key("longest_frames"))
    description.max_frame_count = entries.get_integer("longest_frames", 1, kMaxUtteranceFrames);
  return description;
} catch (const DataError& error) {
  throw CheckpointError(path + ": task.phones: " + error.what());
}

}  // namespace tapeformer
