// The origin of a measured value: the commit of the program, the machine and the date.
#pragma once

#include <nlohmann/json.hpp>

namespace tapeformer {

// Returns an object with the entries commit, machine, threads and date.
nlohmann::ordered_json collect_provenance();

}  // namespace tapeformer
