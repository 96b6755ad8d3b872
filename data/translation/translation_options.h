// The options of data sets for translation: of the user's own files, and of the data sets of the catalogue,
// whose folder has the files train.LANG, valid.LANG and test.LANG, plain or compressed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"
#include "data/sets/catalogue.h"
#include "data/translation/translation_dataset.h"

namespace tapeformer {

std::vector<OptionSpec> list_translation_options(const CatalogueEntry& set);

// Return the options that `values` describe, without and with the paths of the files.
// find_translation_files() throws DataError if files of a data set of the catalogue are missing.
TranslationOptions read_translation_options(const OptionValues& values);
TranslationOptions find_translation_files(const CatalogueEntry& set, const OptionValues& values,
                                          const std::string& data_dir);

// Returns whether there are validation pairs: files, or pairs that are held out from the training files.
bool has_validation_pairs(const CatalogueEntry& set, const OptionValues& values);

// Returns invalid options with their problems.
std::vector<std::pair<std::string, std::string>> find_translation_problems(const CatalogueEntry& set,
                                                                           const OptionValues& values);

}  // namespace tapeformer
