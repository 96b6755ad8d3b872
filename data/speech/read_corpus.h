// Reader of the corpora and lexica in the table of data sets.
#pragma once

#include <filesystem>
#include <string>

#include "data/sets/catalogue.h"
#include "data/speech/corpus.h"

namespace tapeformer {

struct CorpusOptions {
  PhoneSet phone_set = PhoneSet::timit48;  // labels of TIMIT
  bool allow_commands = false;             // runs the commands in wav.scp of Kaldi directories
};

// Reads a part of a corpus. `part` is the name of its folder if the data set has part folders, else "train"
// or "test". If `faults` is not null, readers of all formats except Kaldi append faults to `faults` instead
// of throwing. Throws ConfigError if the data set is not a corpus of speech or has no such part, and
// DataError for faults.
Corpus read_corpus(const CatalogueEntry& set, const std::filesystem::path& folder, const std::string& part,
                   const CorpusOptions& options, Faults* faults = nullptr);

// Returns the path of CMUdict. Throws MissingSetError if no data directory contains CMUdict.
std::filesystem::path find_cmudict(const std::string& data_dir);

}  // namespace tapeformer
