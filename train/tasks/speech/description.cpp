#include "train/tasks/speech/description.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "train/checkpoint/json_entries.h"

namespace tapeformer {
namespace {

// Limits of the entries of state.json.
constexpr int64_t kMaxDims = 1'000'000;
constexpr double kMaxTotalFrames = 1e15;
constexpr int64_t kMaxUtteranceFrames = 1'000'000'000;

}  // namespace

std::string to_json(const SpeechMetadata& metadata) {
  const Words& names = metadata.phone_table.names();
  nlohmann::ordered_json json{{"dims", metadata.feature_dim},
                              {"phones", Words(names.begin() + 1, names.end())},
                              {"longest_frames", metadata.max_frame_count}};
  if (metadata.global_statistics)
    json["global"] = {{"frames", metadata.global_statistics->frame_count},
                      {"sums", metadata.global_statistics->sums},
                      {"squares", metadata.global_statistics->square_sums}};
  return json.dump();
}

SpeechMetadata parse_speech_metadata(const std::string& task_json, const std::string& path) try {
  if (task_json.empty())
    throw CheckpointError(path + ": task: is missing, expected the data of a speech model");
  const JsonObjectReader entries(task_json, path + ": task.");
  SpeechMetadata metadata;
  metadata.feature_dim = entries.get_integer("dims", 1, kMaxDims);
  metadata.phone_table = PhoneTable(entries.get_strings("phones"));
  if (entries.has_key("global")) {
    const JsonObjectReader global = entries.get_object("global");
    metadata.global_statistics = {
        global.get_number("frames", 1, kMaxTotalFrames, "a number of frames of at least 1"),
        global.get_numbers("sums"), global.get_numbers("squares")};
    const size_t size = metadata.global_statistics->sums.size();
    if (size == 0 || size != metadata.global_statistics->square_sums.size() ||
        static_cast<size_t>(metadata.feature_dim) % size != 0)
      throw CheckpointError(concat_text(
          path, ": task.global: expected sums and squares of one size that divides ", metadata.feature_dim,
          ", got ", size, " and ", metadata.global_statistics->square_sums.size()));
  }
  metadata.max_frame_count = entries.get_integer("longest_frames", 1, kMaxUtteranceFrames);
  return metadata;
} catch (const DataError& error) {
  throw CheckpointError(path + ": task.phones: " + error.what());
}

}  // namespace tapeformer
