// The rules of the documentation: links lead to files, and quoted code is the code of the tree.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Every Markdown file at the root, in docs and in the folders of the project.
std::vector<SourceFile> read_documents(const std::filesystem::path& root);

// Relative links whose file is not there.
std::vector<std::string> link_problems(const SourceFile& document, const std::filesystem::path& root);

// Code blocks that begin with ```language PATH quote that file: but for white space, each part between lines
// of "…" must stand in it.
std::vector<std::string> quotation_problems(const SourceFile& document, const std::filesystem::path& root);

}  // namespace tapeformer::test
