// The table of data sets that come with files of their own: their types, sizes, files with checksums, and
// origins. To add a data set of a known format, add a row in catalogue.cpp. The table is constant, and all
// functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

// The type of the examples in a data set.
enum class DatasetType {
  sequences,    // generated sequences of symbols
  expressions,  // generated sequences, each with a class label
  vectors,      // generated sets of vectors
  images,
  text,
  translation,  // pairs of sentences
  speech,
  lexicon,  // pronunciations of words, for data sets of speech
};

// The layout of the files of a corpus of speech (data/speech/read_corpus.h) or of a lexicon.
enum class CorpusFormat { none, an4, spoken_digits, timit, librispeech, kaldi, cmudict };

// The labels in the files of a speech corpus.
enum class SpeechLabelKind {
  phones,
  words,           // words; a lexicon contains their phones
  phones_or_words  // words if the user specifies a lexicon, phones otherwise
};

// A file that a data set requires. If the data set has no checksums, the file can be a folder. `bytes` and
// `sha256` describe the unpacked contents, so they are the same for a plain file and its .gz file.
struct CatalogueFile {
  std::string_view name;  // original name, without .gz
  int64_t bytes = 0;
  std::string_view sha256 = {};  // 64 hexadecimal digits; empty if there is no published checksum
};

// A row of the catalogue. Each row describes one data set.
struct CatalogueEntry {
  std::string_view name;  // name of the data set, and of its folder in a data directory
  DatasetType type;
  CorpusFormat format = CorpusFormat::none;  // of speech and lexicons
  std::string_view title = {};               // one line for listings

  // Size of images.
  int64_t height = 0, width = 0, channels = 0;

  int64_t classes = 0;  // number of classes of the labels; 0: no labels

  // The languages of a data set for translation: the endings of its files, by default translated from the
  // first.
  std::array<std::string_view, 2> languages = {};

  // Properties of speech corpora.
  int64_t sample_rate = 0;  // default rate of recordings in Hz; 0: the files contain features
  SpeechLabelKind label_kind = SpeechLabelKind::phones;
  // Default names of the folders of the training, validation and test parts. The names are empty if the
  // corpus has no such folders.
  std::string_view train_part = {}, valid_part = {}, test_part = {};
  // If true, the user must set the path of the data, which is not in a data directory.
  bool needs_path = false;

  // Files that the data set requires. If the list is empty, the reports of data/sets/verify.h do not cover
  // the data set.
  std::span<const CatalogueFile> files = {};
  std::string_view system_folder = {};          // folder where a Debian package installs the files, or empty
  std::string_view download_instructions = {};  // instructions for the user, in messages about missing files
  // https URL of a folder with the .gz files, or of a .tar.gz or .zip archive. If empty, the data set cannot
  // be fetched.
  std::string_view url = {};

  bool has_checksums() const { return !files.empty() && !files.front().sha256.empty(); }
  // Returns whether "verify" can check the files: by their checksums, or by reading a corpus of speech.
  bool can_be_verified() const {
    return has_checksums() ||
           (!files.empty() && (type == DatasetType::speech || type == DatasetType::lexicon));
  }
  bool has_part_folders() const { return !train_part.empty(); }
};

std::span<const CatalogueEntry> list_catalogue_entries();

// A function that selects rows of the table. An empty function selects all rows.
using CatalogueFilter = std::function<bool(const CatalogueEntry&)>;

// Returns the names of the selected rows, in the order of the table.
std::vector<std::string> list_dataset_names(const CatalogueFilter& filter = {});

// Returns the row with this name, or nullptr.
const CatalogueEntry* find_catalogue_entry(const std::string& name);

// Returns the row with the given name. Throws ConfigError if no row has this name or if `filter` rejects the
// row. `description` is the part of the error message that says what `name` should be, for example "a data
// set of speech".
const CatalogueEntry& require_catalogue_entry(const std::string& name, const CatalogueFilter& filter = {},
                                              const std::string& description = "a data set");

// Returns an error message such as `"mnst" is not a data set; did you mean "mnist"?`, where "a data set" is
// the `description`. If no name in `names` is similar to `name`, the message lists all names.
std::string describe_unknown_name(const std::string& name, const std::string& description,
                                  const std::vector<std::string>& names);

}  // namespace tapeformer
