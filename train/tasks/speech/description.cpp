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
  const Words& names = description.phones.names();
  nlohmann::ordered_json json{{"dims", description.dims}, {"phones", Words(names.begin() + 1, names.end())}};
  if (description.global)
    json["global"] = {{"frames", description.global->frames},
                      {"sums", description.global->sums},
                      {"squares", description.global->squares}};
  if (description.longest_frames > 0) json["longest_frames"] = description.longest_frames;
  return json.dump();
}

SpeechDescription speech_description(const std::string& task_json, const std::string& path) try {
  if (task_json.empty())
    throw CheckpointError(path + ": task: is missing, expected the data of a speech model");
  const JsonEntries entries(task_json, path + ": task.");
  SpeechDescription description;
  description.dims = entries.integer("dims", 1, kMaxDims);
  description.phones = PhoneTable(entries.strings("phones"));
  if (entries.has("global")) {
    const JsonEntries global = entries.object("global");
    description.global = {global.number("frames", 1, kMaxTotalFrames, "a number of frames of at least 1"),
                          global.numbers("sums"), global.numbers("squares")};
    const size_t size = description.global->sums.size();
    if (size == 0 || size != description.global->squares.size() ||
        static_cast<size_t>(description.dims) % size != 0)
      throw CheckpointError(
          concat_text(path, ": task.global: expected sums and squares of one size that divides ",
                      description.dims, ", got ", size, " and ", description.global->squares.size()));
  }
  // Checkpoints of earlier versions lack the length of the longest utterance.
  if (entries.has("longest_frames"))
    description.longest_frames = entries.integer("longest_frames", 1, kMaxUtteranceFrames);
  return description;
} catch (const DataError& error) {
  throw CheckpointError(path + ": task.phones: " + error.what());
}

}  // namespace tapeformer
