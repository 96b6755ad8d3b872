// Version of the program, with the commit of its sources.
#pragma once

#include <string>

namespace tapeformer {

// Returns the commit of the sources: "…-dirty" if their files differed from the commit when they were built,
// or "unknown" if they were not in a repository.
std::string source_commit();

}  // namespace tapeformer
