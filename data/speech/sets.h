// The known speech sets and their folders. Unlike the sets of the catalogue, they have no list of published
// files; speech_problems (data/speech/verify.h) checks their contents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

// an4, fsdd, synthetic-speech and cmudict.
std::vector<std::string> speech_sets();

// A speech set with its folder, if the set was found.
struct SpeechSetReport {
  std::string name, title, how_to_get;
  std::optional<std::filesystem::path> folder;
  int64_t files = 0, missing = 0;  // number of main files and folders, and how many of them are missing
};
// Returns reports of all speech sets.
std::vector<SpeechSetReport> list_speech_sets(const std::string& data_dir);

// The folder of a set, below the first data directory that has one. Throws DataError with the places looked
// in and how to get the set; TIMIT, for example, lies where its owner put it.
std::filesystem::path speech_set_folder(const std::string& name, const std::string& data_dir);

// Where the archive of AN4 was unpacked in its folder, its files lie one deeper.
std::filesystem::path an4_folder(const std::filesystem::path& folder);

}  // namespace tapeformer
