// Rules of the documentation: links point to files, and quoted code occurs in the tree.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/structure/source_rules.h"

namespace tapeformer::test {

// Returns the Markdown files at the root, in docs and in the folders of the project.
std::vector<SourceFile> read_documents(const std::filesystem::path& root);

// Each function below returns one line for each problem. A line begins with "PATH:LINE: ".

// Finds relative links to missing files.
std::vector<std::string> link_problems(const SourceFile& document, const std::filesystem::path& root);

// Finds code blocks with wrong quotations. A code block that begins with "```language PATH" quotes this file.
// Each part of the block between lines of "…" must occur in the file, apart from white space.
std::vector<std::string> quotation_problems(const SourceFile& document, const std::filesystem::path& root);

}  // namespace tapeformer::test
