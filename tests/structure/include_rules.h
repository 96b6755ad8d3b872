// Rules of #include: the direction between folders, the files that may include third-party headers, cycles,
// and internal headers.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Return one line for each problem. A line begins with "PATH:LINE: ".

// Finds includes that the table of folders does not allow. A quoted include must name a file of `tree`.
std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

// Finds headers that include an internal header but are not internal themselves. The opening comment of an
// internal header contains "Internal to".
std::vector<std::string> internal_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

// Return the cycles of includes as texts "A -> B -> A". A cycle that is part of another cycle may be missing.
//
// A unit is a header and its source file: the files with one path up to the extension.
std::vector<std::string> unit_cycles(const std::vector<SourceFile>& tree);

struct FolderInclude {
  std::string from, to;  // folders
};
// The includes in `allowed` are ignored.
std::vector<std::string> folder_cycles(const std::vector<SourceFile>& tree,
                                       const std::vector<FolderInclude>& allowed);

}  // namespace tapeformer::test
