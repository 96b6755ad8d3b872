// The commit of the sources from which the program was built.
#pragma once

#include <string>

namespace tapeformer {

// Returns the commit of the sources. The suffix "-dirty" means that source files differed from the commit
// when the program was built. Returns "unknown" if the sources were not in a repository.
std::string get_source_commit();

}  // namespace tapeformer
