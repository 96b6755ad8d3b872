// Functions that read the speech corpora in the catalogue of data sets and locate CMUdict.
#pragma once

#include <filesystem>
#include <string>

#include "data/sets/catalogue.h"
#include "data/speech/corpus.h"

namespace tapeformer {

struct CorpusOptions {
  PhoneSet phone_set = PhoneSet::timit48;  // set to which the phones of TIMIT are mapped
  bool allow_commands = false;             // runs the commands in wav.scp of Kaldi directories
};

// Reads a part of a corpus. For Kaldi and LibriSpeech data sets, `part` is the name of a folder. For other
// data sets, `part` is "train" or "test", and other values throw ConfigError.
//
// Throws ConfigError if the data set is not a corpus of speech. Throws DataError if a required file or folder
// is missing. If `faults` is null, also throws DataError for an invalid line or utterance; otherwise, appends
// a message for each invalid line or utterance to `faults`. For Kaldi data sets, `faults` is ignored and the
// function always throws.
Corpus read_corpus(const CatalogueEntry& set, const std::filesystem::path& folder, const std::string& part,
                   const CorpusOptions& options, Faults* faults = nullptr);

// Returns the path of CMUdict. Throws MissingDatasetError if no data directory contains CMUdict.
std::filesystem::path find_cmudict(const std::string& data_dir);

}  // namespace tapeformer
