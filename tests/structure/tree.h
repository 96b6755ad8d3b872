// Functions that several structure tests share.
#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Returns the files of the source tree. Only the first call of tree() reads the files from the disk.
inline const std::vector<SourceFile>& tree() {
  static const auto* const files = new std::vector<SourceFile>(read_tree(SOURCE_DIR));
  return *files;
}

// Returns the problems as one text with one problem per line.
inline std::string joined(const std::vector<std::string>& problems) {
  std::string text;
  for (const auto& problem : problems) text += problem + "\n";
  return text;
}

}  // namespace tapeformer::test
