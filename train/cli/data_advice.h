// Advice on how to get a data set with the commands and config keys of the program.
#pragma once

#include <string>

#include "data/sets/directory.h"

namespace tapeformer {

// Returns advice to append to a message: the command or config key that provides the data set, such as "or
// run: tapeformer data fetch mnist". Returns "" if there is no advice.
std::string make_data_advice(const CatalogueEntry& set);

// Returns the message of the error, followed by a line with make_data_advice() if there is advice.
std::string append_data_advice(const MissingSetError& error);

}  // namespace tapeformer
