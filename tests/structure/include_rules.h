// Rules of #include: the direction between folders, the files that may include third-party headers, cycles
// between headers, and internal headers.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Each function returns one line for each problem. A line begins with "PATH:LINE: ".

// Finds includes that the table of folders does not allow. A quoted include must name a file of `tree`.
std::vector<std::string> include_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

// Finds headers that include each other in a cycle. Each cycle is reported once.
std::vector<std::string> cycle_problems(const std::vector<SourceFile>& tree);

// Finds headers that include an internal header but are not internal themselves. The opening comment of an
// internal header contains "Internal to".
std::vector<std::string> internal_problems(const SourceFile& file, const std::vector<SourceFile>& tree);

}  // namespace tapeformer::test
