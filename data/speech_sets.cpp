#include "data/speech_sets.h"

#include "core/errors.h"
#include "data/directory.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string how_to_get_speech(const std::string& name) {
  if (name == "synthetic-speech") return "make it with: tapeformer data prepare synthetic-speech";
  if (name == "an4")
    return "unpack the features of CMU AN4 (etc/ and feat/) into such a folder, or name it as data.path";
  if (name == "fsdd")
    return "clone https://github.com/Jakobovski/free-spoken-digit-dataset into such a folder, or name it as "
           "data.path";
  if (name == "cmudict")
    return "download https://github.com/cmusphinx/cmudict into such a folder, or name a file as data.lexicon";
  return "name the folder as data.path";
}

}  // namespace

std::vector<std::string> speech_sets() {
  return {"an4", "fsdd", "synthetic-speech", "cmudict"};
}

fs::path speech_set_folder(const std::string& name, const std::string& data_dir) {
  const std::string how = how_to_get_speech(name);
  KnownSet set{};
  set.name = name;
  set.how_to_get = how;
  const auto candidates = candidate_folders(set, data_dir);
  for (const fs::path& folder : candidates)
    if (fs::is_directory(folder)) return folder;
  throw DataError(missing_set_text(set, candidates));
}

fs::path an4_folder(const fs::path& folder) {
  return !fs::exists(folder / "etc") && fs::exists(folder / "an4/etc") ? folder / "an4" : folder;
}

}  // namespace tapeformer
