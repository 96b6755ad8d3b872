// Advice on how to get a data set with the commands and config keys of the program.
#pragma once

#include <string>

#include "data/sets/directory.h"

namespace tapeformer {

// Returns advice on how to get the data set, for example "or run: tapeformer data fetch mnist". Commands
// append the advice to an error message. Returns an empty text if there is no advice.
std::string make_data_advice(const CatalogueEntry& set);

// Returns the message of the error, followed by a line with make_data_advice() if there is advice.
std::string format_missing_dataset_error(const MissingDatasetError& error);

}  // namespace tapeformer
