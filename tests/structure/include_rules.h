// Rules for #include. The rules determine which folders a folder may include, and where third-party and
// internal headers may be included. They also forbid cycles of includes.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// include_problems() and internal_problems() return one line for each problem of a file. A line begins with
// "PATH:LINE: ".

// Finds includes that the table of folders does not allow. A quoted include must name a file of `tree`.
std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

// Finds headers that include an internal header but are not internal themselves. The opening comment of an
// internal header contains "Internal to".
std::vector<std::string> internal_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

// Finds cycles of includes between units, and returns each cycle as a text "A -> B -> A". A unit consists of
// the files whose paths differ only in the extension. If several cycles share a unit, the result can omit all
// but one of them.
std::vector<std::string> unit_cycles(const std::vector<SourceFile>& tree);

struct FolderInclude {
  std::string from, to;  // paths of folders
};
// Finds cycles of includes between folders, and returns each cycle as a text "A -> B -> A". Ignores the
// includes in `allowed`. If several cycles share a folder, the result can omit all but one of them.
std::vector<std::string> folder_cycles(const std::vector<SourceFile>& tree,
                                       const std::vector<FolderInclude>& allowed);

}  // namespace tapeformer::test
